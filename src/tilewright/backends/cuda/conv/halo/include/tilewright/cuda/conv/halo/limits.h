// halo: rows of pixels come in once, and taps are multiplied where they lie.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/tma_ws/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace halo {

// `halo_rows`: rows of one; `taps` of weights that may stay; `slice` and `sharing`: of merged groups; `copies`: of
// cuda/conv/copies_limits.h.
// clang-format off
#define TW_SELECT_CUDA_CONV_HALO(X) \
  X(tile_m) X(tile_n) X(tile_k) X(stages) X(halo_rows) X(taps) X(slice) X(sharing) X(merged) X(copies)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_HALO)

constexpr int64_t kMostStride = 8, kMostKinds = most_taps;  // kinds are listed as taps are

TW_CONV_RULE(full_d, "nv-halo", "a D tensor is not one value per channel")
TW_CONV_RULE(channels_many, "nv-halo", "there are more channels than the {tile_k} of this kernel")
TW_CONV_RULE(stride_of_data, "nv-halo", "a stride is over 1")
TW_CONV_RULE(stride_large, "nv-halo", "a stride is over 8")
TW_CONV_RULE(stride_and_dilation, "nv-halo", "a stride and a dilation are both over 1")
TW_CONV_RULE(one_tap, "nv-halo", "the filter has one tap: halo tiles would not be reused")
TW_CONV_RULE(kinds_many, "nv-halo", "strides need more kinds of halo tiles than this kernel has")
TW_CONV_RULE(slice_of_kinds, "nv-slice",
             "slices need one halo tile per tile: several would meet in warpgroups that do not take turns")
TW_CONV_RULE(slice_of_others, "nv-slice", "this kernel's slices are for groups of another size")
TW_CONV_RULE(halo_short, "nv-halo", "the filter reaches over more rows than the {halo_rows} of a halo tile")

// Rows that the taps of a halo tile reach beyond a tile.
inline int64_t halo_rows(const Conv &c) {
  const int64_t high = (c.window[1] - 1) * c.dilation[1] / c.stride[1];
  const int64_t far = (c.window[2] - 1) * c.dilation[2] / c.stride[2];
  return far + high * ((c.p.variant == backward_data ? c.size : c.out)[2] + far);
}

// Planes of taps, and residues in each.
inline int64_t halo_kinds(const Conv &c) {
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

inline const Rule *broken_halo(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  if (p.full_d) return &full_d;
  if (s.tile_k < 64 && (p.groups > 1 || (data ? p.filters : p.channels) > s.tile_k)) return &channels_many;
  for (int axis = 0; axis < 3; ++axis)
    if (data && c.stride[axis] != 1) return &stride_of_data;
  for (int axis = 0; axis < 3; ++axis)
    if (c.stride[axis] > kMostStride) return &stride_large;
  for (int axis = 1; axis < 3; ++axis)
    if (c.stride[axis] > 1 && c.dilation[axis] > 1) return &stride_and_dilation;
  if (ceil_div(c.window[1], c.stride[1]) * ceil_div(c.window[2], c.stride[2]) == 1) return &one_tap;
  return halo_kinds(c) > kMostKinds ? &kinds_many : nullptr;
}

inline const Rule *broken_traversal(const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  const Reach reach = reach_of(c);
  Wide traversed = p.batch;
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t far = (c.window[axis] - 1) * c.dilation[axis];
    const int64_t first = data ? c.before[axis] - far : -c.before[axis];
    const int64_t count = (data ? c.size : c.out)[axis] + (axis > 0 ? far / c.stride[axis] : 0);
    const int64_t last = first + (count - 1) * c.stride[axis] - ((data ? c.out : c.size)[axis] - 1);
    traversed *= count;
    if (axis == 0 && far > reach.tap) return &taps_far;
    if (!reach.holds(first) || !reach.holds(last)) return &edge_far;
  }
  return traversed >= kMost / 2 || larger(p.channels, p.filters) >= kMost ? &size_large : nullptr;
}

// The kernel beside it that fetches what lies the same.
inline tma_ws::Schedule equivalent(const Schedule &s) {
  return {s.tile_m, s.tile_n, s.tile_k, 1, 1, 0, cuda_gemm::data_parallel, 0, s.merged, in_place};
}

// Of a problem as it lies; conv/halo/host.h.
inline const Rule *broken(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  if (const Rule *layout = tma_ws::broken_layout(equivalent(s), c)) return layout;
  if (const Rule *groups = tma_ws::broken_groups(equivalent(s), c)) return groups;
  const int64_t merged = merged_groups(c, s.merged, s.tile_k);
  const Strides to = p.variant == backward_data ? x_strides(c) : y_strides(c);
  const int64_t strides[] = {to.image, to.at[0], to.at[1], to.at[2], to.channels * merged};
  for (int64_t one : strides)
    if (!p.aligned || odd_bytes(one, 2) || one < 1) return &unaligned;
  if (const Rule *rule = broken_halo(s, c)) return rule;
  if (const Rule *rule = broken_traversal(c)) return rule;
  if (s.slice && halo_kinds(c) > 1) return &slice_of_kinds;
  if (s.slice && !sliced(s, c, merged)) return &slice_of_others;
  return halo_rows(c) + s.tile_m > s.halo_rows ? &halo_short : nullptr;
}

inline Needs needs(const Schedule &s) { return {false, s.merged != 0, false}; }

inline const Rule *limits(const Schedule &s, const Conv &c) {
  return limits_in_copies(s.copies, needs(s), c, [&](const Conv &laid_out) { return broken(s, laid_out); });
}

}  // namespace halo
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
