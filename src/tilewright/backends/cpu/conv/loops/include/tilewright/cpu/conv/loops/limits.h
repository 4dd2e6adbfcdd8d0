// loops: any size, stride and element type; the floor.  What it refuses.
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace loops {

#define TW_SELECT_CPU_CONV_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_LOOPS)

inline const Rule *limits(const Schedule &, const Conv &) { return nullptr; }

}  // namespace loops
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
