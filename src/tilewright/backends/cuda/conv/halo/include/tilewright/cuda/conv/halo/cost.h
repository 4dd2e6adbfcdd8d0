// halo: rows of pixels come in once, and taps are multiplied where they lie.  What it takes.
#pragma once
#include <tilewright/cuda/conv/halo/limits.h>
#include <tilewright/cuda/conv/copies_cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace halo {

// Multiplications of pixels and padding, and the halo tiles and taps that come in for them.
inline double seconds_as_laid_out(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  const bool data = p.variant == backward_data;
  const int64_t merged = larger(1, merged_groups(c, s.merged, s.tile_k)), taps = c.taps, units = x.arch.compute_units;
  const int64_t channels = c.group_channels * merged, filters = c.group_filters * merged;
  const int64_t deep = data ? filters : channels, columns = data ? channels : filters;
  int64_t grid = p.batch;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t far = (c.window[axis] - 1) * c.dilation[axis] / c.stride[axis];
    grid *= (data ? c.size : c.out)[axis] + (axis == 0 && p.dims == 3 ? 0 : far);
  }
  const int64_t m = s.tile_m, n = s.tile_n, blocks = ceil_div(deep, 64), rows = halo_rows(c), planes = halo_kinds(c);
  const int64_t lines = ceil_div(grid, m), tiles = lines * ceil_div(columns, n) * (p.groups / merged);
  const int64_t rounds = ceil_div(tiles, units);
  const double slices = s.slice ? slower(0.8, double(s.slice) / double(n)) : 1.0;  // pixels are read whole for each
  const double multiply = double(m * n * s.tile_k * taps * blocks) / r.band_macs * slices;
  const bool resident = taps * blocks <= s.taps && tiles / larger(1, lines) <= units;
  const bool diagonal = merged > 1 && blocks == 1 && c.group_channels % 8 == 0 && c.group_filters % 8 == 0;
  const double pixel = 2.0 * double(larger(32, smaller(64, deep))) * double(blocks);  // and a row of weights: bytes
  const double fetched = pixel * double(planes * (m + rows) + (resident ? 0 : taps * n)) / r.one_cache;
  double traversal = double(planes * blocks * (m + rows)) * r.band_pixel(p.dims);
  if (merged == 1 && !resident) traversal += double(taps * blocks * n) * r.band_row;
  if (diagonal && !resident) traversal += double(taps * merged) * r.diagonal;
  const double weights = double(taps * blocks * n * (resident ? 1 : rounds));
  const bool ends = !s.merged && c.group_channels % 64 != 0;
  traversal += (ends && weights < 600 ? weights * r.short_row : 0.0) / double(rounds);
  double again = ends && weights >= 600 ? r.add_start : 0.0;
  again += merged > 1 && !diagonal ? r.add_start : 0.0;
  const double longest = slower(slower(multiply, fetched), traversal);
  double step = longest + 0.1 * (multiply + fetched + traversal - longest) + r.band_tile;
  if (larger(c.stride[1], c.stride[2]) > 1)
    step += double(planes * blocks) * (s.stages == 2 ? r.few_taps : r.few_taps_of_three);
  return r.start + r.band_fill + slower(double(rounds) * step, c.moved / r.through) + again;
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_in_copies(s.copies, needs(s), x,
                           [&](const Query &laid_out) { return seconds_as_laid_out(s, laid_out); });
}

}  // namespace halo
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
