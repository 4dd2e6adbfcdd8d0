// loops: any size, stride, element type and feature; also combines splits and appends rows.  What it takes.
#pragma once
#include <tilewright/cuda/attention/cost.h>
#include <tilewright/cuda/attention/loops/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  const int64_t longest = p.family == kForward || p.family == kSplit ? p.seqlen_k : 1;
  const double products = double(x.a.flops) / 2 / r.loop_macs, moved = double(x.a.moved) / r.memory * 4;
  const double taken = slower(slower(products, double(longest) * r.loop_key), moved);
  return of_uneven_sequences(x.a, r.start + taken);
}

}  // namespace loops
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
