// depthwise_tile: a filter for each channel; warps slide square windows over tiles of shared memory.  What it takes.
#pragma once
#include <tilewright/cuda/conv/copies_cost.h>
#include <tilewright/cuda/conv/depthwise_tile/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace depthwise_tile {

// Units reach over edges, and so do tiles' channels.
inline double seconds_as_laid_out(const Schedule &s, const Query &x) {
  constexpr double beside = 0.3;  // of what is hidden behind the longer of multiplications and memory
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  const bool data = p.variant == backward_data;
  const Sizes &to = data ? c.size : c.out;
  const int64_t up = data ? s.stride : 1, blocks = ceil_div(p.channels, s.tile_channels);
  double idle = double(round_up(to[2], s.tile_w * up)) / double(to[2]);
  idle = idle * double(round_up(to[1], s.tile_h * up)) / double(to[1]);
  idle *= double(round_up(p.channels, s.tile_channels)) / double(p.channels);
  const int64_t parts = larger(1, x.arch.compute_units / blocks);
  double sums = 0.0;
  if (p.variant == backward_weight) sums = r.add_start + 8.0 * double(parts) * c.w_elements() / r.sums;
  const double again = s.tile_channels == 32 ? 1.0 + 0.05 : 1.0;  // each pixel is loaded in more pieces
  const double moved = c.moved / r.through * again, multiply = multiply_adds(c) * idle / r.tile_fmas;
  return r.start + slower(multiply, moved) + beside * faster(multiply, moved) + sums;
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_in_copies(s.copies, needs, x, [&](const Query &laid_out) { return seconds_as_laid_out(s, laid_out); });
}

}  // namespace depthwise_tile
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
