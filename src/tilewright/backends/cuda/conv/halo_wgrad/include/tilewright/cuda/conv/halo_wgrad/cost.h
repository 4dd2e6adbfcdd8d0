// halo_wgrad: gradients of weights over halo tiles of pixels, the taps of a plane at a time.  What it takes.
#pragma once
#include <tilewright/cuda/conv/halo_wgrad/limits.h>
#include <tilewright/cuda/conv/copies_cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace halo_wgrad {

// Nine taps are multiplied, however many there are; partial sums are stored and added.
inline double seconds_as_laid_out(const Schedule &s, const Query &x) {
  constexpr double two_stages = 1.25;  // a stage comes while one is multiplied, and no other
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  const int64_t units = x.arch.compute_units, merged = larger(1, side_by_side(c));
  const int64_t items = int64_t(blocks(c, merged)) * c.window[0];
  int64_t grid = p.batch;
  for (int axis = 0; axis < 3; ++axis)
    grid *= c.out[axis] + (axis == 0 && p.dims == 3 ? 0 : (c.window[axis] - 1) * c.dilation[axis]);
  const int64_t chunks = ceil_div(grid, s.pixels), parts = larger(1, smaller(units / items, chunks));
  const int64_t rounds = ceil_div(items * parts, units) * ceil_div(chunks, parts);
  const double multiply = double(64 * 64 * 9 * s.pixels) / r.band_weight_macs;
  const double traversal = double(2 * s.pixels + halo::halo_rows(c)) * r.band_pixel(p.dims);
  const double sums = 8.0 * double(parts) * c.w_elements();
  const double body = double(rounds) * (slower(multiply, traversal) * (s.stages == 2 ? two_stages : 1.0) + r.band_tile);
  return r.start + r.band_fill + slower(body, c.moved / r.memory) + r.add_start + sums / r.memory;
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_in_copies(s.copies, needs, x, [&](const Query &laid_out) { return seconds_as_laid_out(s, laid_out); });
}

}  // namespace halo_wgrad
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
