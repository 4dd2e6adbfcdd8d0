// mma: cp.async feeds mma.sync, in two passes; every feature, any stride.  What it takes.
#pragma once
#include <tilewright/cuda/attention_backward/cost.h>
#include <tilewright/cuda/attention_backward/mma/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace mma {

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionBackward &a = x.a;
  const AttentionBackwardProblem &p = a.p;
  const Rates &r = x.rate;
  const double entries = double(s.own) * double(s.met), units = double(x.arch.compute_units);
  const double keys = double(p.varlen ? p.total_k : p.seqlen_k * p.batch);
  const double rows = double(p.varlen ? p.total_q : p.seqlen_q * p.batch);
  const double steps = tiles_met(a, double(s.own), double(s.met)), more = s.scored ? 2.0 : 1.0;
  const double first = entries * double(2 * s.head_dim + 2 * s.head_dim_v) / r.mma_unit_macs + r.mma_step * more;
  const double second = entries * double(2 * s.head_dim + s.head_dim_v) / r.mma_unit_macs + r.mma_step * more;
  const double of_keys = slower(1.0, keys / double(s.own)) * double(p.heads_kv);
  const double of_rows = slower(1.0, rows / double(s.own)) * double(p.heads_q);
  const double taken = (steps * first + of_keys * r.item) * shared_out(of_keys, units) +
                       (steps * second + of_rows * r.item) * shared_out(of_rows, units);
  return 2 * r.start + slower(taken, double(a.moved) / r.memory);
}

}  // namespace mma
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
