// winograd: minimal filtering of 3 x 3 windows, squares of results as products of transformed matrices.
// What it refuses.
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace winograd {

// `results`: the side of a square of results; `rows` by `columns`: the register block.
#define TW_SELECT_CPU_CONV_WINOGRAD(X) X(results) X(tile_m) X(rows) X(columns)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_WINOGRAD)

inline constexpr Rule cpu_window{"cpu-window", TW_LIMIT,
                                 "the filter is {window_1}x{window_2} with stride {stride_1}x{stride_2} and element "
                                 "size {size}, and Winograd is for 3x3 filters of stride 1 and fp32",
                                 "use implicit"};

inline const Rule *limits(const Schedule &, const Conv &c) {
  const bool filtered = c.window[1] == 3 && c.window[2] == 3 && c.stride[1] == 1 && c.stride[2] == 1;
  if (filtered && c.p.size != 1) return far_beyond(c);
  const Rule *beyond = far_beyond(c);
  return beyond ? beyond : &cpu_window;
}

}  // namespace winograd
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
