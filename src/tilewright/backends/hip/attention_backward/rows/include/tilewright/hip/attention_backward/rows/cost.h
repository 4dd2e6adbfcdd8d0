// rows: dot and convert, 16 bytes a thread.  What it takes.
#pragma once
#include <tilewright/hip/attention_backward/cost.h>
#include <tilewright/hip/attention_backward/rows/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace rows {

inline double seconds(const Schedule &, const Query &x) { return x.rate.start + double(x.a.moved) / x.rate.memory; }

}  // namespace rows
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
