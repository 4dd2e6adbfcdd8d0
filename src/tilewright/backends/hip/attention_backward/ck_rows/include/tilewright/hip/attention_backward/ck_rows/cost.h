// ck_rows: CK Tile's dot_do_o and convert_dq.  What they take.
#pragma once
#include <tilewright/hip/attention_backward/ck_rows/limits.h>
#include <tilewright/hip/attention_backward/cost.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace ck_rows {

// A lane of dot_do_o reads a row, 16 bytes at a time of rows side by side; each result of convert_dq has its own launch.
inline double seconds(const Schedule &s, const Query &x) {
  const AttentionBackwardProblem &p = x.a.p;
  const double launches = p.family == kDot             ? 1 + p.dsink
                          : p.accumulate == kAllSums   ? 3
                          : p.accumulate == kSumsOfDkv ? 2
                                                       : 1;
  const double slow = (p.family == kDot ? 1.5 : 1.1) * (s.pad_head ? 2.0 : 1.0);  // edge code moves single elements
  return launches * x.rate.start + slow * double(x.a.moved) / x.rate.memory;
}

}  // namespace ck_rows
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
