// rows: dot and convert, a row at a time in vectors.  It refuses nothing.
#pragma once
#include <tilewright/select/attention_backward.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {
namespace rows {

// `rows`: of one head, that a thread takes at a time.
#define TW_SELECT_CPU_ATTENTION_BACKWARD_ROWS(X) X(rows)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_ATTENTION_BACKWARD_ROWS)

inline const Rule *limits(const Schedule &, const AttentionBackward &) { return nullptr; }

}  // namespace rows
}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
