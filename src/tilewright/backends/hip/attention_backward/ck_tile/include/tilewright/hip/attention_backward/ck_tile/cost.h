// ck_tile: CK Tile's kernel of dq, dk and dv.  What it takes.
#pragma once
#include <tilewright/hip/attention_backward/ck_tile/limits.h>
#include <tilewright/hip/attention_backward/cost.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace ck_tile {

// Whole tiles of rows and keys, on as many compute units as there are blocks for.
inline double seconds(const Schedule &s, const Query &x) {
  const AttentionBackwardProblem &p = x.a.p;
  const int64_t tiles = ceil_div(p.seqlen_k, s.tile_n0), units = x.arch.compute_units;
  const double keys = double(tiles * s.tile_n0) / double(larger(1, p.seqlen_k));
  const double filled = keys * double(round_up(p.seqlen_q, s.tile_m0)) / double(larger(1, p.seqlen_q));
  const Wide blocks = Wide(p.batch) * p.heads_q * larger(1, tiles);
  const double waves = double((blocks + units - 1) / units * units) / double(blocks > 1 ? blocks : 1);
  const double heads = double(s.tile_head + s.tile_head_v) / double(larger(1, p.head_dim + p.head_dim_v));
  const double slow = s.pad_head || s.pad_head_v ? 1.5 : 1.0;  // edge code loads element by element
  const double products = double(x.a.flops) * filled * heads * waves * slow / flops_of(x.rate, p.type);
  const double slices = s.ordered ? 8.0 * double(x.a.rows_of_all()) * double(p.head_dim) * double(tiles) : 0.0;
  return 2 * x.rate.start + slower(products, double(x.a.moved) / x.rate.memory) + slices / x.rate.memory;
}

}  // namespace ck_tile
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
