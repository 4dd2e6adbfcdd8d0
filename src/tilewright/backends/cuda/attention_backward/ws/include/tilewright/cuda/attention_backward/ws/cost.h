// ws: TMA feeds wgmma, warp-specialized; dk and dv in registers, dq added up by the copy engine.  What it takes.
#pragma once
#include <tilewright/cuda/attention_backward/cost.h>
#include <tilewright/cuda/attention_backward/ws/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace ws {

constexpr double kTurns = 1.15;    // how much longer it takes to add in turns
constexpr double kTightly = 1.04;  // and without scores ahead

inline double seconds(const Schedule &s, const Asked &x) {
  const AttentionBackward &a = x.a;
  const AttentionBackwardProblem &p = a.p;
  const Rates &r = x.rate;
  const double entries = double(s.tile_m) * double(s.tile_n);
  const double products = entries * double(3 * s.head_dim + 2 * s.head_dim_v) / r.unit_macs;
  const double step = products * (s.ahead ? 1.0 : kTightly) + entries * r.score * (s.scored ? 2.0 : 1.0) + r.step;
  const double keys = double(p.varlen ? p.total_k : p.seqlen_k * p.batch);
  const double blocks = slower(1.0, keys / double(s.tile_n)) * double(p.heads_kv);
  const double steps = tiles_met(a, double(s.tile_n), double(s.tile_m));
  const double work = (steps * step + blocks * r.item) * shared_out(blocks, double(x.arch.compute_units));
  return 2 * r.start + slower(work * (p.deterministic ? kTurns : 1.0), double(a.moved) / r.memory);
}

}  // namespace ws
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
