// loops: any size, stride, element type and feature.  It refuses nothing.
#pragma once
#include <tilewright/select/attention_backward.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {
namespace loops {

#define TW_SELECT_CPU_ATTENTION_BACKWARD_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_ATTENTION_BACKWARD_LOOPS)

inline const Rule *limits(const Schedule &, const AttentionBackward &) { return nullptr; }

}  // namespace loops
}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
