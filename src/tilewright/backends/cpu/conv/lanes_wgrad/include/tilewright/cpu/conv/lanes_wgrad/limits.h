// lanes_wgrad: gradients of weights of depthwise and small groups, a handful of taps in registers.  What it refuses.
#pragma once
#include <tilewright/cpu/conv/strip_limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace lanes_wgrad {

// `taps` in registers.
#define TW_SELECT_CPU_CONV_LANES_WGRAD(X) X(taps)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_LANES_WGRAD)

inline const Rule *limits(const Schedule &, const Conv &c) { return broken_strip(c); }

}  // namespace lanes_wgrad
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
