// Families whose costs are Python's still: the library refuses what they plainly do not take, and is else undecided.
#pragma once
#include <tilewright/select/cuda_conv_pointwise.h>

namespace tw {
namespace select {
namespace cuda_conv {

#define TW_SELECT_CUDA_CONV_KNOWN(X) X(none)

namespace depthwise {
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_KNOWN)
inline ConvRule limits(const Schedule &, const Asked &x) {
  if (x.c.p.batch == 0) return ConvRule::undecided;
  return x.c.group_channels != 1 || x.c.group_filters != 1 ? ConvRule::nv_groups : ConvRule::undecided;
}
inline double seconds(const Schedule &, const Asked &) { return __builtin_nan(""); }
}  // namespace depthwise

namespace pointwise_multistage {
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_KNOWN)
inline ConvRule limits(const Schedule &, const Asked &x) {
  if (x.c.p.batch == 0) return ConvRule::undecided;
  return pointwise::one_pixel(x.c) ? ConvRule::undecided : ConvRule::nv_pointwise;
}
inline double seconds(const Schedule &, const Asked &) { return __builtin_nan(""); }
}  // namespace pointwise_multistage

namespace folded {
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_KNOWN)
inline ConvRule limits(const Schedule &, const Asked &x) {
  if (x.c.p.batch == 0) return ConvRule::undecided;
  if (x.c.p.groups != 1) return ConvRule::nv_groups;
  return x.c.p.channels > 8 ? ConvRule::nv_folded : ConvRule::undecided;
}
inline double seconds(const Schedule &, const Asked &) { return __builtin_nan(""); }
}  // namespace folded

// Kernels in copies of what is not aligned, or whose channels lie apart.
namespace copies {

// `fills_up`: for operands too whose channels lie side by side.  The others say what a pipeline asks of operands that
// copies are made of (cuda/conv/host_copies.h).
#define TW_SELECT_CUDA_CONV_COPIES(X) X(fills_up) X(whole_groups) X(any_filters) X(any_pixels)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_COPIES)

inline bool aligned(const Conv &c, const Strides &s, int64_t size) {
  return c.p.aligned && !odd_bytes(s.image, size) && !odd_bytes(s.at[0], size) && !odd_bytes(s.at[1], size) &&
         !odd_bytes(s.at[2], size);
}

// Whether x, w or y is copied; those of which there is more, unaligned ones, uneven pixels, channels apart.
struct Copied {
  bool any = false, turned = false;  // turned: one whose channels lie apart

  void add(bool needed, int64_t channel) {
    any = any || needed;
    turned = turned || (needed && channel != 1);
  }
};

inline Copied copied(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  const int64_t piece = kLineBytes / p.size;
  const bool more_x = p.groups == 1 && !s.any_pixels && p.channels % piece, more_y = p.groups == 1 && p.filters % piece;
  const int64_t size_x = data ? p.size_out : p.size, size_w = p.variant == backward_weight ? p.size_out : p.size;
  const int64_t size_y = p.variant == forward ? p.size_out : p.size;
  const bool odd_x = data && !dense_pixels(p.x_image, p.x_0, p.x_1, p.x_2, p.batch, c.size);
  const bool odd_w = !dense_pixels(p.w_filter, p.w_0, p.w_1, p.w_2, 1, c.window);
  const bool odd_y = !data && !dense_pixels(p.y_image, p.y_0, p.y_1, p.y_2, p.batch, c.out);
  const bool loose_w = s.any_filters ? !p.aligned : !aligned(c, w_strides(c), size_w);
  Copied found;
  found.add(more_x || (!s.any_pixels && (odd_x || !aligned(c, x_strides(c), size_x) || p.x_channel != 1)), p.x_channel);
  found.add(more_x || more_y || odd_w || (!s.any_pixels && (loose_w || p.w_channel != 1)), p.w_channel);
  found.add(more_y || odd_y || !aligned(c, y_strides(c), size_y) || p.y_channel != 1, p.y_channel);
  return found;
}

inline bool backwards(const Strides &s) {
  return smaller(smaller(smaller(s.image, s.at[0]), smaller(s.at[1], s.at[2])), s.channel) < 1;
}

// conv_host_padded.h.
inline ConvRule limits(const Schedule &s, const Asked &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  if (p.batch == 0 && p.variant != backward_weight) return ConvRule::undecided;
  if (c.channels_last() && !s.fills_up) return ConvRule::nv_padded;
  if (s.whole_groups && (c.group_channels != 1 || c.group_filters != 1)) return ConvRule::nv_groups;
  if (p.batch == 0 || s.whole_groups) return ConvRule::undecided;
  const int64_t piece = kLineBytes / p.size;
  const int64_t channels = s.any_filters ? p.channels : c.group_channels;
  const int64_t filters = s.any_filters ? p.filters : c.group_filters;
  if (p.groups != 1 && (channels % piece || filters % piece)) return ConvRule::nv_groups;
  if (backwards(x_strides(c)) || backwards(w_strides(c)) || backwards(y_strides(c))) return ConvRule::nv_padded;
  const Copied found = copied(s, c);
  return !found.any || (!s.fills_up && !found.turned) ? ConvRule::nv_padded : ConvRule::undecided;
}
inline double seconds(const Schedule &, const Asked &) { return __builtin_nan(""); }

}  // namespace copies

}  // namespace cuda_conv
}  // namespace select
}  // namespace tw
