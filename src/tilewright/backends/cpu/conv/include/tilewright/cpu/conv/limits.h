// What kernels of convolutions on a CPU refuse alike.
#pragma once
#include <tilewright/select/conv.h>

namespace tw {
namespace selection {
namespace cpu_conv {

inline constexpr Rule cpu_beyond{
    "cpu-beyond", TW_LIMIT,
    "padding {before_0}x{before_1}x{before_2}, stride {stride_0}x{stride_1}x{stride_2} or dilation "
    "{dilation_0}x{dilation_1}x{dilation_2} reaches too far beyond an input of {size_0}x{size_1}x{size_2} pixels",
    "reach at most 64 pixels beyond the input, or use the loops pipeline"};

inline bool back(const Conv &c) { return c.p.variant == backward_data; }

// Channels of a group that are summed over.
inline int64_t depth_of(const Conv &c) { return back(c) ? c.group_filters : c.group_channels; }

constexpr int64_t kBeyond = 64;  // pixels that strides, dilation and padding may reach beyond the input

// Steps and padding for which lines would be laid out that have next to nothing in them.
inline const Rule *far_beyond(const Conv &c) {
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t far = c.size[axis] + kBeyond;
    if (c.before[axis] > far || (c.out[axis] > 1 && c.stride[axis] > far) ||
        (c.window[axis] > 1 && c.dilation[axis] > far))
      return &cpu_beyond;
  }
  return nullptr;
}

}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
