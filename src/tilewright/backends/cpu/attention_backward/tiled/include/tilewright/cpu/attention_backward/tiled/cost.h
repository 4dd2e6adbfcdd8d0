// tiled: grad of many rows; rows in lanes, blocks of keys whose dk and dv stay in the cache.  What it takes.
#pragma once
#include <tilewright/cpu/attention_backward/cost.h>
#include <tilewright/cpu/attention_backward/tiled/limits.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {
namespace tiled {

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionBackwardProblem &p = x.a.p;
  const Rates &r = x.rate;
  if (!p.batch) return seconds_of(x, 0.0);  // no sequence, nothing to share out
  const int64_t columns = s.vectors * width(x), lanes = width(x);
  const double heads = double(p.batch) * double(p.heads_q);
  const double rows = p.varlen ? double(p.total_q) / double(p.batch) : double(p.seqlen_q);
  const double keys = p.varlen ? double(p.total_k) / double(p.batch) : double(p.seqlen_k);
  const double tiles = heads * double(ceil_div(int64_t(rows), s.rows));
  const double seen = double(x.a.pairs) / slower(1.0, heads * rows);  // keys a row sees
  const double traversed = faster(keys, seen + (x.a.bounded ? double(s.rows) / 2 : 0.0));
  const double blocks = traversed / double(s.keys) + 1.0;
  const double qk = double(round_up(p.head_dim, columns)), v = double(round_up(p.head_dim_v, columns));
  const double products = (3.0 * qk + 2.0 * v) / double(s.step) * r.multiply;
  const double pairs = tiles * double(s.rows) * traversed / double(lanes);
  double cycles = pairs * (products + r.weight + r.touch * touches(p));
  cycles += tiles * blocks * (r.block + double(s.rows) * (qk + v) / double(lanes) * 2 * r.pack);
  cycles += double(p.batch) * double(p.heads_kv) * keys * (qk + v) / double(lanes) * 3 * r.pack;
  const int64_t items =
      p.batch * p.heads_kv * larger(1, smaller(24 / larger(1, p.batch * p.heads_kv), p.seqlen_k / 512));
  return seconds_of(x, slower(cycles, double(x.a.moved) / r.memory) / double(larger(1, smaller(team(x), items))));
}

}  // namespace tiled
}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
