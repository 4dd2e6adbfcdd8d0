// loops: any size, stride, element type and feature; also combines splits and appends rows.  What it refuses.
#pragma once
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace loops {

#define TW_SELECT_CUDA_ATTENTION_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_LOOPS)

inline const Rule *limits(const Schedule &, const Attention &) { return nullptr; }

}  // namespace loops
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
