// loops: any size, stride, element type and feature.  What it refuses.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace hip_attention {
namespace loops {

#define TW_SELECT_HIP_ATTENTION_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_LOOPS)

inline const Rule *limits(const Schedule &, const Attention &) { return nullptr; }

}  // namespace loops
}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
