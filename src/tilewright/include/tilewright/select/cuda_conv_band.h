// band: rows of pixels come in once, and taps are multiplied where they lie.
#pragma once
#include <tilewright/select/cuda_conv_tma_ws.h>

namespace tw {
namespace select {
namespace cuda_conv {
namespace band {

// `band`: rows of one; `taps` of weights that may stay; `slice` and `sharing`: of merged groups.
// clang-format off
#define TW_SELECT_CUDA_CONV_BAND(X) \
  X(tile_m) X(tile_n) X(tile_k) X(stages) X(band) X(taps) X(slice) X(sharing) X(merged)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_BAND)

constexpr int64_t kMostStride = 8, kMostKinds = 343;

// Rows that the taps of a band reach beyond a tile.
inline int64_t band_rows(const Conv &c) {
  const int64_t high = (c.window[1] - 1) * c.dilation[1] / c.stride[1];
  const int64_t far = (c.window[2] - 1) * c.dilation[2] / c.stride[2];
  return far + high * ((c.p.variant == backward_data ? c.size : c.out)[2] + far);
}

// Planes of taps, and residues in each.
inline int64_t band_kinds(const Conv &c) {
  return c.window[0] * smaller(c.window[1], c.stride[1]) * smaller(c.window[2], c.stride[2]);
}

// Whether the slices of the kernel are those of the groups.
inline bool sliced(const Schedule &s, const Conv &c, int64_t merged) {
  const bool data = c.p.variant == backward_data;
  const int64_t deep = data ? c.group_filters : c.group_channels, wide = data ? c.group_channels : c.group_filters;
  if (merged < 2 || deep * merged != 64 || wide * merged != s.tile_n || (deep % 16 && 16 % deep)) return false;
  const int64_t sharing = deep <= 16 ? 1 : deep / 16, columns = deep <= 16 ? 16 / deep * wide : wide;
  return sharing == s.sharing && columns == s.slice;
}

inline bool broken_band(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  if (p.full_d) return true;
  if (s.tile_k < 64 && (p.groups > 1 || (data ? p.filters : p.channels) > s.tile_k)) return true;
  for (int axis = 0; axis < 3; ++axis)
    if ((data && c.stride[axis] != 1) || c.stride[axis] > kMostStride) return true;
  for (int axis = 1; axis < 3; ++axis)
    if (c.stride[axis] > 1 && c.dilation[axis] > 1) return true;
  const int64_t taps = ceil_div(c.window[1], c.stride[1]) * ceil_div(c.window[2], c.stride[2]);
  return taps == 1 || band_kinds(c) > kMostKinds;
}

inline bool broken_walk(const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  const int64_t reach = p.dims == 3 ? 16 : 128, farthest = p.dims == 3 ? 31 : 255;
  Wide walked = p.batch;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t far = (c.window[axis] - 1) * c.dilation[axis];
    const int64_t first = data ? c.before[axis] - far : -c.before[axis];
    const int64_t count = (data ? c.size : c.out)[axis] + (axis > 0 ? far / c.stride[axis] : 0);
    const int64_t last = first + (count - 1) * c.stride[axis] - ((data ? c.out : c.size)[axis] - 1);
    walked *= count;
    if (axis == 0 && far > farthest) return true;
    if (first < -reach || first >= reach || last < -reach || last >= reach) return true;
  }
  return walked >= kMost / 2 || larger(p.channels, p.filters) >= kMost;
}

// conv_host_band.h.
inline ConvRule limits(const Schedule &s, const Asked &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  if (p.batch == 0) return ConvRule::serves;
  const tma_ws::Schedule twin{s.tile_m, s.tile_n, s.tile_k, 1, 1, 0, cuda_gemm::tiles, 0, s.merged};
  const ConvRule layout = tma_ws::broken_layout(twin, c);
  if (layout != ConvRule::serves) return layout;
  if (tma_ws::broken_groups(twin, c)) return ConvRule::nv_groups;
  const int64_t merged = merged_groups(c, s.merged, s.tile_k);
  const Strides to = p.variant == backward_data ? x_strides(c) : y_strides(c);
  for (int64_t one : {to.image, to.at[0], to.at[1], to.at[2], to.channels * merged})
    if (!p.aligned || odd_bytes(one, 2) || one < 1) return ConvRule::nv_alignment;
  if (broken_band(s, c)) return ConvRule::nv_band;
  if (broken_walk(c)) return ConvRule::nv_walk;
  if (s.slice && (band_kinds(c) > 1 || !sliced(s, c, merged))) return ConvRule::nv_slice;
  return band_rows(c) + s.tile_m > s.band ? ConvRule::nv_band : ConvRule::serves;
}

// Multiplications of pixels and padding, and the bands and taps that come in for them.
inline double seconds(const Schedule &s, const Asked &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  if (p.batch == 0) return r.start;
  const bool data = p.variant == backward_data;
  const int64_t merged = larger(1, merged_groups(c, s.merged, s.tile_k)), taps = c.taps, units = x.arch.compute_units;
  const int64_t channels = c.group_channels * merged, filters = c.group_filters * merged;
  const int64_t deep = data ? filters : channels, columns = data ? channels : filters;
  int64_t grid = p.batch;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t far = (c.window[axis] - 1) * c.dilation[axis] / c.stride[axis];
    grid *= (data ? c.size : c.out)[axis] + (axis == 0 && p.dims == 3 ? 0 : far);
  }
  const int64_t m = s.tile_m, n = s.tile_n, blocks = ceil_div(deep, 64), rows = band_rows(c), planes = band_kinds(c);
  const int64_t lines = ceil_div(grid, m), tiles = lines * ceil_div(columns, n) * (p.groups / merged);
  const int64_t rounds = ceil_div(tiles, units);
  const double slices = s.slice ? slower(0.8, double(s.slice) / double(n)) : 1.0;  // pixels are read whole for each
  const double multiply = double(m * n * s.tile_k * taps * blocks) / r.band_macs * slices;
  const bool resident = taps * blocks <= s.taps && tiles / larger(1, lines) <= units;
  const bool diagonal = merged > 1 && blocks == 1 && c.group_channels % 8 == 0 && c.group_filters % 8 == 0;
  const double pixel = 2.0 * double(larger(32, smaller(64, deep))) * double(blocks);  // and a row of weights: bytes
  const double fetched = pixel * double(planes * (m + rows) + (resident ? 0 : taps * n)) / r.one_cache;
  const double each = p.dims == 3 ? r.band_pixel_3 : p.dims == 2 ? r.band_pixel_2 : r.band_pixel_1;
  double walk = double(planes * blocks * (m + rows)) * each;
  if (merged == 1 && !resident) walk += double(taps * blocks * n) * r.band_row;
  if (diagonal && !resident) walk += double(taps * merged) * r.diagonal;
  const double weights = double(taps * blocks * n * (resident ? 1 : rounds));
  const bool ends = !s.merged && c.group_channels % 64 != 0;
  walk += (ends && weights < 600 ? weights * r.short_row : 0.0) / double(rounds);
  double again = ends && weights >= 600 ? r.add_start : 0.0;
  again += merged > 1 && !diagonal ? r.add_start : 0.0;
  const double longest = slower(slower(multiply, fetched), walk);
  double step = longest + 0.1 * (multiply + fetched + walk - longest) + r.band_tile;
  if (larger(c.stride[1], c.stride[2]) > 1)
    step += double(planes * blocks) * (s.stages == 2 ? r.few_taps : r.few_taps_of_three);
  return r.start + r.band_fill + slower(double(rounds) * step, c.moved / r.through) + again;
}

}  // namespace band
}  // namespace cuda_conv
}  // namespace select
}  // namespace tw
