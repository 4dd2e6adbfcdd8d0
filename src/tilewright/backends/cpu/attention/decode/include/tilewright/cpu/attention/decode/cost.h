// decode: a few rows, and a cache that is read once, its keys shared among threads.  What it takes.
#pragma once
#include <tilewright/cpu/attention/cost.h>
#include <tilewright/cpu/attention/decode/limits.h>

namespace tw {
namespace selection {
namespace cpu_attention {
namespace decode {

// Widening a vector of values, or pairing two.
inline double widening(const AttentionProblem &p) { return p.size_kv == 4 ? 0.0 : 2.0; }

// Cycles of a key where lanes are elements of a head.
inline double by_row(const Schedule &s, const Query &x, int64_t rows) {
  const AttentionProblem &p = x.a.p;
  const int64_t lane = width(x) * s.step;
  int64_t at_once = 1;
  while (at_once < smaller(rows, s.rows)) at_once *= 2;
  const double dots = double(ceil_div(p.head_dim, lane)) + x.rate.fold;
  const double values = double(ceil_div(p.head_dim_v, lane)) * (1.0 + widening(p) / double(at_once));
  const double weights = (x.rate.weight + x.rate.touch * touches(p)) / double(width(x));
  return double(round_up(rows, at_once)) * (dots + values + weights);
}

// Cycles of a key where lanes are rows.
inline double in_lanes(const Schedule &s, const Query &x, int64_t rows) {
  const AttentionProblem &p = x.a.p;
  const int64_t vectors = ceil_div(rows, width(x)), lane = width(x) * s.step;
  const bool far = double(p.k_row * p.size_kv) > x.rate.near, packs = far || (s.step == 1 && p.size_kv != 4);
  const double packed = packs ? x.rate.pack * double(p.head_dim) / double(lane) : 0.0;
  const double dots = double(vectors * p.head_dim) / double(s.step) + packed;
  const double each = double(round_up(rows, s.rows)) + widening(p) * double(ceil_div(rows, s.rows));
  const double values = double(ceil_div(p.head_dim_v, lane)) * each;
  return dots + values + double(vectors) * (x.rate.weight + x.rate.touch * touches(p));
}

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  if (!p.batch) return seconds_of(x, 0.0);  // no sequence, nothing to share out
  const int64_t width = cpu_attention::width(x), rows = larger(1, p.seqlen_q * x.a.group), heads = p.batch * p.heads_kv;
  const bool packed = p.varlen && p.pages == kNoPages;
  const double keys = packed ? double(p.total_k) / double(p.batch) : double(p.seqlen_k);
  const Wide all = Wide(p.batch) * p.heads_q * p.seqlen_q;
  const double seen = faster(keys, ratio(x.a.pairs, all > 1 ? all : 1) + double(p.seqlen_q));
  const bool rows_in_lanes = rows > width / 2;
  const double each = rows_in_lanes ? in_lanes(s, x, rows) : by_row(s, x, rows);
  const double blocks = seen / double(s.keys) + 1;
  const double block = r.block + r.row * double(rows_in_lanes ? ceil_div(rows, width) : rows);
  double cycles = double(heads) * (seen * each + blocks * block);
  cycles +=
      double(heads * rows * (p.head_dim + p.head_dim_v)) / double(width) * r.turn;  // queries packed, results stored
  const double moved = double(heads) * seen * head_elements(p) * double(p.size_kv);
  const int64_t parts = larger(1, smaller(int64_t(r.items) / larger(1, heads), int64_t(seen) / 256));
  cycles = slower(cycles, moved / r.memory) / double(larger(1, smaller(team(x), heads * parts)));
  return seconds_of(x, cycles);
}

}  // namespace decode
}  // namespace cpu_attention
}  // namespace selection
}  // namespace tw
