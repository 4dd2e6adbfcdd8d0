// rows: dot and convert, 16 bytes a thread.  What it refuses.
#pragma once
#include <tilewright/cuda/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace rows {

#define TW_SELECT_CUDA_ATTENTION_BACKWARD_ROWS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_BACKWARD_ROWS)

inline const Rule *limits(const Schedule &, const AttentionBackward &a) { return size_limits(a.p); }

}  // namespace rows
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
