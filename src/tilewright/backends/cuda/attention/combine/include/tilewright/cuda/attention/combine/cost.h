// combine: splits combined, a team of warps for a row of one head.  What it takes.
#pragma once
#include <tilewright/cuda/attention/cost.h>
#include <tilewright/cuda/attention/combine/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace combine {

// Splits that a warp reads at once, and warps of a multiprocessor: cuda/attention/combine/kernel.h.
constexpr int64_t kPartsAtOnce = 8, kWarpsAtOnce = 32;

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  const Wide rows = Wide(p.heads_q) * p.batch * p.seqlen_q, room = kWarpsAtOnce * x.arch.compute_units / s.warps;
  const double rounds = double((rows + room - 1) / room);
  const double read = 4.0 * double(p.num_splits) * double(p.head_dim_v) * double(rows);
  const int64_t turns = ceil_div(p.num_splits, kPartsAtOnce * s.warps);
  return r.start + rounds * (r.row + r.more_parts * double(turns - 1)) + read / r.memory;
}

}  // namespace combine
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
