// lanes: vectors along the channels of the result, each lane in a group of its own: depthwise, and small groups.
// What it refuses.
#pragma once
#include <tilewright/cpu/conv/strip_limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace lanes {

// `pixels` of a run in registers.
#define TW_SELECT_CPU_CONV_LANES(X) X(pixels)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_LANES)

inline const Rule *limits(const Schedule &, const Conv &c) { return broken_strip(c); }

}  // namespace lanes
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
