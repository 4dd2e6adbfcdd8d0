// What the limits of convolutions on NVIDIA GPUs share: their rules, and where operands lie that TMA fetches.
#pragma once
#include <tilewright/select/conv.h>

namespace tw {
namespace selection {
namespace cuda_conv {

#define TW_CONV_OTHER "use another kernel of the pool"
// A rule of kernels that were made for other problems.
#define TW_CONV_RULE(id, name, why) inline constexpr Rule id{name, TW_LIMIT, why, TW_CONV_OTHER};

TW_CONV_RULE(no_images, "nv-walk", "the batch is empty")
TW_CONV_RULE(channels_apart, "nv-channels-last", "memory is not channels-last")
TW_CONV_RULE(taps_uneven, "nv-dense", "the taps of a filter are not evenly spaced in memory")
TW_CONV_RULE(planes_uneven, "nv-dense", "the planes of images are not evenly spaced in memory")
TW_CONV_RULE(not_depthwise, "nv-groups", "groups have more than one channel or filter: not depthwise")
TW_CONV_RULE(taps_far, "nv-walk", "filter taps are farther apart than TMA's im2col offsets reach")
TW_CONV_RULE(edge_far, "nv-walk", "padding or filter size is more than TMA's im2col bounding box allows")
TW_CONV_RULE(size_large, "nv-walk", "a size is 2^30 or more")
TW_CONV_RULE(pixels_many, "nv-walk", "2^30 or more pixels or weights")
TW_CONV_RULE(window_deep, "nv-depthwise", "the filter is more than 7 deep")
inline constexpr Rule unaligned{"nv-alignment", TW_ALIGNMENT, "an address or a stride is not a multiple of 16 bytes",
                                TW_CONV_OTHER};

constexpr int64_t kLineBytes = 16;  // what TMA requires of addresses and strides
constexpr int64_t kMost = int64_t(1) << 31;
constexpr int64_t kMostPlanes = 7;  // of the window of a depthwise kernel that TMA feeds

// How far a traversal may begin before an image or end behind it, and how far taps may move a pixel: corners of im2col maps
// have 8 bits a dimension of two, 5 bits of three.
struct Reach {
  int64_t edge, tap;
  bool holds(int64_t place) const { return -edge <= place && place < edge; }
};
inline Reach reach_of(const Conv &c) { return c.p.dims == 3 ? Reach{16, 31} : Reach{128, 255}; }

inline bool odd_bytes(int64_t stride, int64_t size) { return stride * size % kLineBytes != 0; }
inline bool nothing_written(const Conv &c) { return c.p.batch == 0 && c.p.variant != backward_weight; }
inline bool depthwise_groups(const Conv &c) { return c.group_channels == 1 && c.group_filters == 1; }

// Taps of one filter, as pixels of one image.
inline bool even_taps(const Conv &c) { return dense_pixels(c.p.w_filter, c.p.w_0, c.p.w_1, c.p.w_2, 1, c.window); }
inline bool even_x(const Conv &c, int64_t images) {
  return dense_pixels(c.p.x_image, c.p.x_0, c.p.x_1, c.p.x_2, images, c.size);
}
inline bool even_y(const Conv &c, int64_t images) {
  return dense_pixels(c.p.y_image, c.p.y_0, c.p.y_1, c.p.y_2, images, c.out);
}

// Whether TMA reads x (y) where it lies.
inline bool readable(const Conv &c, const Strides &s) {
  bool fine = c.p.aligned != 0;
  const int64_t strides[] = {s.image, s.at[0], s.at[1], s.at[2]};
  for (int64_t one : strides) fine = fine && one > 0 && !odd_bytes(one, c.p.size);
  return fine;
}

// Of how many groups one is made: as few as fill whole stages, two or more; 0 where no number does.
inline int64_t merged_groups(const Conv &c, bool merged, int64_t stage) {
  if (!merged) return 1;
  const int64_t deep = c.p.variant == backward_data ? c.group_filters : c.group_channels;
  for (int64_t n = 2; n <= c.p.groups; ++n)
    if (c.p.groups % n == 0 && n * deep % stage == 0) return n;
  return 0;
}

// Gradients of weights whose taps are no whole 64s of columns side by side (cuda/conv/tma_ws/host.h).
inline bool odd_columns(const Conv &c) {
  return c.group_channels % 64 > 0 || (c.taps > 1 && c.p.w_2 != c.group_channels);
}

// Of those, the ones that leave to where they belong, with nothing in between.
inline bool ragged(const Conv &c) {
  const bool whole = c.p.groups == 1 && c.p.channels % 8 == 0 && c.p.aligned;
  return odd_columns(c) && whole && !odd_bytes(c.p.w_filter, c.p.size_out) && !odd_bytes(c.p.w_2, c.p.size_out);
}

// Strides of a tensor whose channels lie side by side, with nothing in between.
inline Strides dense_strides(const Sizes &shape, int64_t channels) {
  Strides s{};
  s.channel = 1, s.channels = channels, s.at[2] = channels, s.at[1] = s.at[2] * shape[2], s.at[0] = s.at[1] * shape[1];
  s.image = s.at[0] * shape[0];
  return s;
}
inline void lay_x(ConvProblem &p, const Strides &s) {
  p.x_image = s.image, p.x_0 = s.at[0], p.x_1 = s.at[1], p.x_2 = s.at[2], p.x_channel = s.channel;
}
inline void lay_w(ConvProblem &p, const Strides &s) {
  p.w_filter = s.image, p.w_0 = s.at[0], p.w_1 = s.at[1], p.w_2 = s.at[2], p.w_channel = s.channel;
}
inline void lay_y(ConvProblem &p, const Strides &s) {
  p.y_image = s.image, p.y_0 = s.at[0], p.y_1 = s.at[1], p.y_2 = s.at[2], p.y_channel = s.channel;
}
inline Sizes size_of(const ConvProblem &p) { return {{p.size_0, p.size_1, p.size_2}}; }
inline Sizes window_of(const ConvProblem &p) { return {{p.window_0, p.window_1, p.window_2}}; }
inline Sizes out_of(const ConvProblem &p) { return {{p.out_0, p.out_1, p.out_2}}; }

}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
