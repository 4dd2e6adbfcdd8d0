// ws: TMA feeds wgmma, warp-specialized; dk and dv in registers, dq added up by TMA.  What it takes.
#pragma once
#include <tilewright/cuda/attention_backward/cost.h>
#include <tilewright/cuda/attention_backward/ws/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace ws {

constexpr double kTurns = 1.15;    // how much longer it takes to add in turns
constexpr double kTightly = 1.04;  // and without scores ahead

// Tiles of rows of one query head that the tile of keys meets that meets the most.
inline double rows_met(const AttentionBackward &a, double keys, double rows) {
  const AttentionBackwardProblem &p = a.p;
  const double all = ceil(double(p.varlen ? p.total_q / larger(1, p.batch) : p.seqlen_q) / rows);
  if (p.window_left < 0 || p.sink_tokens) return all;
  const double seen = ceil((keys + double(p.window_left) + double(larger(0, p.window_right))) / rows) + 1;
  return seen < all ? seen : all;
}

// Warpgroups have 64 columns of dq each, whether or not the head has so many.
inline int columns_of_dq(const Schedule &s) {
  return s.head_dim > 64 && s.head_dim <= 128 && s.head_dim_v <= 128 ? 128 : s.head_dim;
}
// Tiles that are met; where every row sees every key, each sequence has whole ones.
inline double all_steps(const AttentionBackward &a, double keys, double rows) {
  const AttentionBackwardProblem &p = a.p;
  if (a.bounded || p.varlen) return tiles_met(a, keys, rows);
  return double(p.batch) * double(p.heads_q) * ceil(double(p.seqlen_q) / rows) * ceil(double(p.seqlen_k) / keys);
}

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionBackward &a = x.a;
  const AttentionBackwardProblem &p = a.p;
  const Rates &r = x.rate;
  const double entries = double(s.tile_m) * double(s.tile_n);
  const double products = entries * double(2 * s.head_dim + 2 * s.head_dim_v + columns_of_dq(s)) / r.unit_macs;
  const double step = products * (s.ahead ? 1.0 : kTightly) + entries * r.score * (s.scored ? 2.0 : 1.0) + r.step;
  const double keys = double(p.varlen ? p.total_k : p.seqlen_k * p.batch);
  const double blocks = slower(1.0, keys / double(s.tile_n)) * double(p.heads_kv) * double(p.dkv_splits);
  const double steps = all_steps(a, double(s.tile_n), double(s.tile_m));
  const double longest = rows_met(a, double(s.tile_n), double(s.tile_m)) * double(a.group) / double(p.dkv_splits);
  const double work = shared_out(blocks, longest * step + r.item, steps * step + blocks * r.item,
                                 double(x.arch.compute_units), !a.bounded && !p.varlen);
  const double sums = p.accumulate == kAllSums ? double(p.dkv_splits) * 4 * double(a.keys_of_all()) *
                                                     double(p.head_dim + p.head_dim_v) / r.memory
                                               : 0.0;
  return 2 * r.start + slower(work * (p.deterministic ? kTurns : 1.0) + sums, double(a.moved) / r.memory);
}

}  // namespace ws
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
