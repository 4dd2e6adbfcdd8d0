// depthwise_tile: a filter for each channel; warps slide square windows over tiles of shared memory.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/copies_limits.h>
#include <tilewright/cuda/conv/depthwise_limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace depthwise_tile {

// `window` and `step` along both axes, `spread` the dilation; a unit has `lines` of `pixels`; `channels` of a tile;
// `shared_bytes`: of the arch; `copies`: of cuda/conv/copies_limits.h.
// clang-format off
#define TW_SELECT_CUDA_CONV_DEPTHWISE_TILE(X) \
  X(filter_size) X(stride) X(tile_w) X(tile_h) X(tile_channels) X(dilation) X(shared_bytes) X(copies)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_DEPTHWISE_TILE)

TW_CONV_RULE(window_differs, "nv-depthwise", "this kernel is for another filter size, stride or dilation")
TW_CONV_RULE(data_of_planes, "nv-depthwise", "a stride is over 1 along the depth, and this kernel is for stride 1")
TW_CONV_RULE(data_of_strides, "nv-depthwise",
             "a stride is over 1 with a filter of several planes, or with padding that is odd on one side only")
TW_CONV_RULE(no_room, "nv-shared-memory", "a tile does not fit into shared memory")

// Shared memory of the smallest tile (conv/depthwise_tile/host.h).
inline int64_t least_bytes(const Schedule &s, bool weight, int64_t planes) {
  const int64_t pixel = 2 * s.tile_channels, wide = (s.filter_size - 1) * s.dilation + 1;
  const int64_t reach = (s.tile_w - 1) * s.stride + wide, high = (s.tile_h - 1) * s.stride + wide;
  if (weight) return 256 + high * round_up(reach * pixel, 128) + s.tile_h * round_up(s.tile_w * pixel, 128);
  const int64_t weights = round_up(planes * s.filter_size * s.filter_size * s.tile_channels * 4, 128);
  return 256 + weights + planes * high * round_up(reach * pixel, 128);
}

inline bool slides(const Schedule &s, const Conv &c) {
  bool same = c.p.dims > 1;
  for (int axis = 1; axis < 3; ++axis)
    same = same && c.window[axis] == s.filter_size && c.stride[axis] == s.stride && c.dilation[axis] == s.dilation;
  return same;
}

// Of a problem as it lies; conv/depthwise_tile/host.h.
inline const Rule *broken(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  if (p.batch == 0) return &no_images;
  if (!depthwise_groups(c)) return &not_depthwise;
  if (const Rule *rule = broken_tiles(c)) return rule;
  if (!slides(s, c)) return &window_differs;
  if (data && c.stride[0] != 1) return &data_of_planes;
  if (data && s.stride > 1 && (c.window[0] > 1 || (c.before[1] + c.before[2]) % 2)) return &data_of_strides;
  if (c.window[0] > kMostPlanes) return &window_deep;
  if (!readable(c, x_strides(c)) || !readable(c, y_strides(c))) return &unaligned;
  const Wide all = Wide(p.batch) * (data ? c.size : c.out).product();
  if (all >= kMost / 2 || Wide(c.taps) * p.channels >= kMost / 2) return &pixels_many;
  return least_bytes(s, p.variant == backward_weight, c.window[0]) > s.shared_bytes ? &no_room : nullptr;
}

constexpr Needs needs{true, true, false};

inline const Rule *limits(const Schedule &s, const Conv &c) {
  return limits_in_copies(s.copies, needs, c, [&](const Conv &laid_out) { return broken(s, laid_out); });
}

}  // namespace depthwise_tile
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
