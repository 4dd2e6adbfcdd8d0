// gather, gather_planes: cp.async gathers pieces of both operands, and mma.sync multiplies them.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/gather/memory.h>
#include <tilewright/cuda/conv/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace gather {

// `vector_*`: elements that are copied at a time; `along_*`: neighbouring threads read along k; `ctas_per_sm`: blocks of
// one multiprocessor, at least.
// clang-format off
#define TW_SELECT_CUDA_CONV_GATHER(X) \
  X(tile_m) X(tile_n) X(tile_k) X(vector_a) X(vector_b) X(along_a) X(along_b) X(ctas_per_sm)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_GATHER)

constexpr int64_t kMostSides = gather_bits,
                  kMostStride = gather_strides;  // taps of all axes have a bit each; classes of pixels of an axis
constexpr int64_t kLeastProducts = 32;           // of a pixel in a group: with fewer, tiles are all but empty
constexpr int64_t kHalf = kMost / 2;
constexpr double kAlone = 1.3;  // how many times as long a k-block takes without another block beside it

TW_CONV_RULE(sides_long, "nv-gather", "the sides of the filter add up to more than 30")
TW_CONV_RULE(stride_large, "nv-gather", "a stride is over 8")
TW_CONV_RULE(products_few, "nv-gather", "a pixel has so few products per group that plain loops are faster")
TW_CONV_RULE(gather_large, "nv-gather", "a size is 2^30 or more")
TW_CONV_RULE(tiles_many, "nv-gather", "2^30 or more tiles")
TW_CONV_RULE(far, "nv-gather", "an operand spans 2^31 elements or more")
inline constexpr Rule unaligned_a{"nv-alignment", TW_ALIGNMENT,
                                  "an operand is not aligned to the {vector_a} elements copied at a time",
                                  TW_CONV_OTHER};
inline constexpr Rule unaligned_b{"nv-alignment", TW_ALIGNMENT,
                                  "an operand is not aligned to the {vector_b} elements copied at a time",
                                  TW_CONV_OTHER};

// Classes of pixels share the taps.
inline int64_t classes_of(const Conv &c) {
  int64_t classes = 1;
  for (int axis = 0; axis < 3; ++axis) classes *= smaller(c.size[axis], c.stride[axis]);
  return classes;
}

inline Wide places(const Conv &c) {
  Wide found = c.p.batch;
  for (int axis = 0; axis < 3; ++axis) found *= ceil_div(c.size[axis], c.stride[axis]);
  return found;
}

// Of all groups and classes.
inline Wide tiles(const Schedule &s, const Conv &c) {
  const bool data = c.p.variant == backward_data, weight = c.p.variant == backward_weight;
  const Wide lines = weight ? Wide(c.group_filters) : data ? places(c) : Wide(c.p.batch) * c.out.product();
  const Wide columns = weight ? Wide(c.group_channels) * c.taps : Wide(data ? c.group_channels : c.group_filters);
  return (lines + s.tile_m - 1) / s.tile_m * ((columns + s.tile_n - 1) / s.tile_n) * (data ? classes_of(c) : 1) *
         c.p.groups;
}

inline bool too_large(const Conv &c) {
  const bool data = c.p.variant == backward_data;
  int64_t most = larger(c.group_channels, c.group_filters);
  for (int axis = 0; axis < 3; ++axis) {
    most = larger(most, larger(larger(c.size[axis], c.out[axis]), c.before[axis]));
    most = larger(most, larger(c.window[axis] * c.dilation[axis], c.out[axis] * c.stride[axis]));
  }
  const Wide lines = data ? places(c) : Wide(c.p.batch) * c.out.product();
  const Wide deep = Wide(c.taps) * (data ? c.group_filters : c.group_channels);
  return most >= kHalf || lines >= kHalf || deep >= kHalf;
}

// Whether elements of an operand lie 2^31 or more apart.
inline bool far_apart(int64_t images, const Sizes &shape, const Strides &s) {
  Wide span = 0;
  const auto add = [&](int64_t size, int64_t stride) {
    if (size) span += Wide(size - 1) * (stride < 0 ? -stride : stride);
  };
  add(images, s.image), add(s.channels, s.channel);
  for (int axis = 0; axis < 3; ++axis) add(shape[axis], s.at[axis]);
  return span >= kMost;
}

inline const Rule *limits(const Schedule &s, const Conv &c) {
  const bool data = c.p.variant == backward_data, weight = c.p.variant == backward_weight;
  if (nothing_written(c)) return nullptr;
  if (c.window[0] + c.window[1] + c.window[2] > kMostSides) return &sides_long;
  if (data && larger(larger(c.stride[0], c.stride[1]), c.stride[2]) > kMostStride) return &stride_large;
  if (!weight && Wide(c.taps) * c.group_channels * c.group_filters < kLeastProducts) return &products_few;
  if (too_large(c)) return &gather_large;
  if (tiles(s, c) >= kHalf) return &tiles_many;
  if (far_apart(c.p.batch, c.size, x_strides(c)) || far_apart(c.group_filters, c.window, w_strides(c)) ||
      far_apart(c.p.batch, c.out, y_strides(c)))
    return &far;
  if (s.vector_a > 1 && !in_vectors(c, data || weight ? y_strides(c) : x_strides(c), s.vector_a)) return &unaligned_a;
  if (s.vector_b > 1 && !in_vectors(c, weight ? x_strides(c) : w_strides(c), s.vector_b)) return &unaligned_b;
  return nullptr;
}

}  // namespace gather
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
