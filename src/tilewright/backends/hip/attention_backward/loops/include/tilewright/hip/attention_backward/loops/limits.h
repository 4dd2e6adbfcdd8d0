// loops: any size, stride, element type and feature.  What it refuses.
#pragma once
#include <tilewright/hip/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace loops {

#define TW_SELECT_HIP_ATTENTION_BACKWARD_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_BACKWARD_LOOPS)

inline const Rule *limits(const Schedule &, const AttentionBackward &) { return nullptr; }

}  // namespace loops
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
