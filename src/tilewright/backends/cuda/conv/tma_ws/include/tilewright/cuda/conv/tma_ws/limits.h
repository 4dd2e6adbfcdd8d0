// tma_ws of convolutions: TMA traverses pixels and feeds wgmma.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/copies_limits.h>
#include <tilewright/cuda/conv/tma_ws/sizes.h>
#include <tilewright/cuda/gemm/rules.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace tma_ws {

// `copies`: of cuda/conv/copies_limits.h; `merged`: groups of few channels, several as one.
// clang-format off
#define TW_SELECT_CUDA_CONV_TMA_WS(X) \
  X(tile_m) X(tile_n) X(tile_k) X(cluster_m) X(cluster_n) X(pingpong) X(tile_scheduler) X(tma_store) X(merged) X(copies)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_TMA_WS)

constexpr int64_t kMostStride = 8, kMostTaps = most_taps, kMostClasses = most_classes;

TW_CONV_RULE(y_uneven, "nv-dense", "the pixels of y are not evenly spaced in memory")
TW_CONV_RULE(x_uneven, "nv-dense", "the pixels of x are not evenly spaced in memory")
TW_CONV_RULE(groups_do_not_fill, "nv-groups", "no number of merged groups fills whole stages with channels")
TW_CONV_RULE(group_ends_inside, "nv-groups", "the channels of a group are not a multiple of tile_k {tile_k}")
TW_CONV_RULE(group_of_odd_bytes, "nv-groups", "the channels or filters of a group are not a multiple of 16 bytes")
TW_CONV_RULE(merged_large, "nv-groups", "2^31 or more weights of merged groups")
TW_CONV_RULE(taps_many, "nv-walk", "a filter has more than 343 taps")
TW_CONV_RULE(stride_large, "nv-walk", "a stride is over 8")
TW_CONV_RULE(classes_many, "nv-walk", "strides divide pixels into more than 27 classes")
TW_CONV_RULE(classes_apart, "nv-walk", "a stride is over 1, and this kernel stores contiguous results only")

// Rows of results may lie anywhere: backward_data of strides over 1 has such.
inline bool by_rows(const Schedule &s, const Conv &c) {
  return !s.tma_store && s.tile_scheduler == cuda_gemm::data_parallel && c.p.variant == backward_data &&
         c.p.size_out == 2;
}

// What TMA reads, and what it writes.
inline bool aligned(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  bool broken = !p.aligned;
  const auto read = [&](int64_t stride) { broken = broken || odd_bytes(stride, p.size) || stride < 1; };
  const auto written = [&](int64_t stride) { broken = broken || odd_bytes(stride, p.size_out); };
  if (p.variant != backward_data) read(p.x_image), read(p.x_0), read(p.x_1), read(p.x_2);
  if (p.variant != forward) read(p.y_image), read(p.y_0), read(p.y_1), read(p.y_2);
  if (p.variant != backward_weight && !s.merged) read(p.w_filter), read(p.w_2);
  const int64_t merged = merged_groups(c, s.merged, s.tile_k);
  const bool apart = p.variant == backward_weight && (merged > 1 || odd_columns(c)), rows = by_rows(s, c);
  if (!(s.tma_store && !apart) && !rows) return !broken;
  if (p.variant == forward) written(p.y_2), written(c.group_filters * merged);
  if (p.variant == backward_data) {
    written(p.x_2), written(c.group_channels * merged);
    if (rows) written(p.x_image), written(p.x_0), written(p.x_1);
  }
  if (p.variant == backward_weight) written(p.w_filter);
  return !broken;
}

inline const Rule *broken_layout(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  if (!c.channels_last()) return &channels_apart;
  if (!even_taps(c)) return &taps_uneven;
  const bool by_classes = !s.tma_store && s.tile_scheduler == cuda_gemm::data_parallel;
  if (p.variant != backward_data && !even_y(c, p.batch)) return &y_uneven;
  if (p.variant == backward_data && !by_classes && !even_x(c, p.batch)) return &x_uneven;
  return aligned(s, c) ? nullptr : &unaligned;
}

inline const Rule *broken_groups(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const int64_t merged = merged_groups(c, s.merged, s.tile_k);
  if (merged == 0) return &groups_do_not_fill;
  const int64_t deep = p.variant == backward_data ? c.group_filters : c.group_channels;
  if (p.variant != backward_weight && p.groups > merged && deep * merged % s.tile_k) return &group_ends_inside;
  // A traversal may begin at whole 16 bytes of channels only: an H200 stops at others.
  if (p.variant == backward_weight && p.groups > merged &&
      (odd_bytes(c.group_channels * merged, 2) || odd_bytes(c.group_filters * merged, 2)))
    return &group_of_odd_bytes;
  return merged > 1 && Wide(p.filters) * c.taps * c.group_channels * merged >= kMost ? &merged_large : nullptr;
}

// Of an axis that is traversed: first pixel, how far the last lies behind the tensor's, how far taps move it, and how
// many there are.
struct Traversal {
  int64_t first, last, far, count;
};

inline Traversal traversal_of(const Conv &c, int axis) {
  const int64_t size = c.size[axis], out = c.out[axis], stride = c.stride[axis], before = c.before[axis];
  const int64_t window = c.window[axis], dilation = c.dilation[axis];
  if (c.p.variant != backward_data)
    return {-before, -before + (out - 1) * stride - (size - 1), (window - 1) * dilation, out};
  int64_t least = 0, most = 0;
  bool any = false;
  for (int64_t rest = 0; rest < smaller(stride, size); ++rest)
    for (int64_t tap = 0; tap < window; ++tap) {
      const int64_t place = rest + before - tap * dilation;
      if (place % stride) continue;
      least = any ? smaller(least, place / stride) : place / stride;
      most = any ? larger(most, place / stride) : place / stride;
      any = true;
    }
  const int64_t pixels = ceil_div(size, stride);
  return {least, least + pixels - 1 - (out - 1), most - least, pixels};
}

// cuda/conv/traversal.h.
inline const Rule *broken_traversal(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  if (p.batch == 0) return &no_images;
  if (c.taps > kMostTaps) return &taps_many;
  for (int axis = 0; axis < 3; ++axis)
    if (c.stride[axis] > kMostStride) return &stride_large;
  const Reach reach = reach_of(c);
  int64_t classes = 1;
  Wide pixels = p.batch;
  const Rule *edge = nullptr;
  for (int axis = 0; axis < 3; ++axis) {
    const Traversal traversed = traversal_of(c, axis);
    if (traversed.far > reach.tap) return &taps_far;
    if (!reach.holds(traversed.first) || !reach.holds(traversed.last)) edge = &edge_far;
    if (data) classes *= smaller(c.stride[axis], c.size[axis]);
    pixels *= traversed.count;
  }
  if (edge) return edge;
  if (classes > kMostClasses) return &classes_many;
  if (classes > 1 && (s.tma_store || s.tile_scheduler != cuda_gemm::data_parallel)) return &classes_apart;
  const Wide all = Wide(p.batch) * (data ? c.size : c.out).product();
  const bool large = pixels >= kMost / 2 || all >= kMost / 2 || larger(p.channels, p.filters) >= kMost;
  return large ? &size_large : nullptr;
}

// Of a problem as it lies.
inline const Rule *broken(const Schedule &s, const Conv &c) {
  if (const Rule *layout = broken_layout(s, c)) return layout;
  if (const Rule *groups = broken_groups(s, c)) return groups;
  return broken_traversal(s, c);
}

inline Needs needs(const Schedule &s) { return {false, s.merged != 0, false}; }

inline const Rule *limits(const Schedule &s, const Conv &c) {
  return limits_in_copies(s.copies, needs(s), c, [&](const Conv &laid_out) { return broken(s, laid_out); });
}

}  // namespace tma_ws
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
