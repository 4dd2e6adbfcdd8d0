// rows: dot and convert, 16 bytes a thread.  What it refuses.
#pragma once
#include <tilewright/hip/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace rows {

#define TW_SELECT_HIP_ATTENTION_BACKWARD_ROWS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_BACKWARD_ROWS)

inline const Rule *limits(const Schedule &, const AttentionBackward &a) { return size_limits(a.p); }

}  // namespace rows
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
