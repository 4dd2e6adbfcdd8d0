// loops: any size, stride, element type and feature.  What it takes.
#pragma once
#include <tilewright/cpu/attention_backward/cost.h>
#include <tilewright/cpu/attention_backward/loops/limits.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  const AttentionBackwardProblem &p = x.a.p;
  // The softmax is computed again for each result that it goes into.
  const double again = p.family == kGrad ? 2.0 + double(p.dbias) + double(p.dalibi) : 1.0;
  const double cycles = x.rate.loop * again * double(x.a.flops) / 2 + double(x.a.moved) / 2;
  return seconds_of(x, cycles / double(larger(1, x.host.threads)));
}

}  // namespace loops
}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
