// depthwise: a filter for each channel; threads slide its window over strips of pixels in registers.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/copies_limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace depthwise {

// `window`: its width, 0 is any; `step`: the stride along the width; `pixels` of a strip; `rows` that a window rolls
// down; `vector`: channels of a thread; `copies`: of cuda/conv/copies_limits.h.
#define TW_SELECT_CUDA_CONV_DEPTHWISE(X) X(filter_size) X(stride) X(pixels) X(rolling_rows) X(vector) X(copies)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_DEPTHWISE)

constexpr int64_t kThreads = 128, kShared = 48 * 1024;  // cuda/conv/depthwise/shape.h

TW_CONV_RULE(no_vectors, "nv-groups", "{channels} channels are not a multiple of the vector width {vector}")
TW_CONV_RULE(vectors_fit, "nv-groups",
             "{channels} channels are a multiple of the vector width, and this kernel is for others")
TW_CONV_RULE(width_differs, "nv-depthwise", "this kernel is for another filter width, stride or dilation")
TW_CONV_RULE(does_not_roll, "nv-depthwise", "this kernel rolls down square filters of stride 1")
TW_CONV_RULE(data_of_strides, "nv-depthwise", "a stride is over 1, and this kernel is for stride 1")
TW_CONV_RULE(taps_many, "nv-shared-memory", "the filter has more taps than fit into shared memory")
TW_CONV_RULE(strips_many, "nv-walk", "2^30 or more strips of pixels, or weights")
inline constexpr Rule vectors_astray{
    "nv-alignment", TW_ALIGNMENT,
    "an address or a stride is not a multiple of the vector of channels that is read at a time", TW_CONV_OTHER};

// Vectors of channels of a block, as even as possible.
inline int64_t vectors_of(const Schedule &s, const Conv &c) {
  const int64_t count = larger(1, c.p.channels / s.vector);
  return ceil_div(count, ceil_div(count, 32));
}

inline bool in_whole_vectors(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  bool whole = p.aligned || s.vector == 1;
  const int64_t strides[] = {p.x_image, p.x_0, p.x_1, p.x_2, p.y_image, p.y_0, p.y_1, p.y_2};
  for (int64_t one : strides) whole = whole && one % s.vector == 0;
  return whole;
}

// Of a problem as it lies; conv/depthwise/host.h.
inline const Rule *broken(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool weight = p.variant == backward_weight, data = p.variant == backward_data;
  if (p.batch == 0) return &no_images;
  if (!depthwise_groups(c)) return &not_depthwise;
  if (p.channels % s.vector) return &no_vectors;
  if (s.vector == 1 && p.channels % 2 == 0) return &vectors_fit;
  if (p.x_channel != 1 || p.y_channel != 1) return &channels_apart;
  if (!even_taps(c)) return &taps_uneven;
  if (s.filter_size && (c.window[2] != s.filter_size || c.stride[2] != s.stride || c.dilation[2] != 1))
    return &width_differs;
  if (s.rolling_rows && (c.window[1] != s.filter_size || c.stride[1] != 1 || c.dilation[1] != 1)) return &does_not_roll;
  if (data && s.filter_size && c.stride.product() != 1) return &data_of_strides;
  const int64_t vectors = vectors_of(s, c);
  const Wide kept = weight ? Wide(s.filter_size * (kThreads / vectors)) : Wide(c.taps);
  if (4 * vectors * s.vector * kept > kShared) return &taps_many;
  if (!in_whole_vectors(s, c)) return &vectors_astray;
  const Sizes &to = data ? c.size : c.out;
  const Wide strips = Wide(p.batch) * to[0] * to[1] * ceil_div(to[2], s.pixels);
  return strips >= kMost / 2 || Wide(c.taps) * p.channels >= kMost / 2 ? &strips_many : nullptr;
}

constexpr Needs needs{true, true, false};

inline const Rule *limits(const Schedule &s, const Conv &c) {
  return limits_in_copies(s.copies, needs, c, [&](const Conv &laid_out) { return broken(s, laid_out); });
}

}  // namespace depthwise
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
