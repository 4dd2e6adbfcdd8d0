// tiled: queries in lanes, keys block by block with a running softmax; for many rows.  What it takes.
#pragma once
#include <tilewright/cpu/attention/cost.h>
#include <tilewright/cpu/attention/tiled/limits.h>

namespace tw {
namespace selection {
namespace cpu_attention {
namespace tiled {

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  if (!p.batch) return seconds_of(x, 0.0);  // no sequence, nothing to share out
  const int64_t width = cpu_attention::width(x), cores = team(x), heads = p.batch * p.heads_kv, group = x.a.group;
  const double rows = p.varlen ? double(p.total_q) / double(p.batch) : double(p.seqlen_q);
  const bool apart = x.a.bounded && rows >= double(s.rows);
  const int64_t vectors =
      apart ? group * (round_up(int64_t(rows), width) / width) : round_up(int64_t(double(group) * rows), width) / width;
  const int64_t tiles = heads * ceil_div(vectors * width, s.rows);
  const double lines = double(heads * vectors);                                             // vectors of rows
  const double seen = double(x.a.pairs) / slower(1.0, double(p.batch * p.heads_q) * rows);  // keys a row sees
  const double over = apart ? double(s.rows) / 2 : x.a.bounded ? rows : 0.0;
  const double traversed = faster(double(p.seqlen_k), seen + over);
  const double each =
      double(p.head_dim + round_up(p.head_dim_v, s.deep)) / double(s.step) * 1.06 + r.weight + r.touch * touches(p);
  double cycles = lines * traversed * each + double(tiles) * r.tile + lines * head_elements(p) * r.turn;
  const double moved = double(heads) * traversed * head_elements(p) * double(p.size_kv) / r.memory;
  if (p.size_kv != 4 || p.pages != kNoPages || larger(p.k_row, p.v_row) > 512) {
    const int64_t shared =
        larger(1, smaller(tiles / (4 * cores), s.set / s.rows));  // tiles of a set, of a head of keys
    const int64_t sets = heads * ceil_div(tiles, heads * shared);
    cycles += double(sets) * traversed * head_elements(p) / double(width) * r.pack;
    cycles += moved;  // what is packed is read first and multiplied then: few rows wait for memory
  }
  cycles = slower(cycles, moved);
  const int64_t parts = larger(1, smaller(int64_t(r.items) / larger(1, tiles), p.seqlen_k / 512));
  return seconds_of(x, cycles / double(larger(1, smaller(cores, tiles * parts))));
}

}  // namespace tiled
}  // namespace cpu_attention
}  // namespace selection
}  // namespace tw
