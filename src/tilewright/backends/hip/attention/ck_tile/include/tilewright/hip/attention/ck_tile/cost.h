// ck_tile: CK Tile's kernels; which of them (`route`) follows from the signature.  What it takes.
#pragma once
#include <tilewright/hip/attention/cost.h>
#include <tilewright/hip/attention/ck_tile/limits.h>

namespace tw {
namespace selection {
namespace hip_attention {
namespace ck_tile {

// Whole tiles of rows and keys, on as many compute units as there are blocks for.
inline double compute_seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  if (p.family != kForward && p.family != kSplit) return 0.0;
  const int64_t tiles = ceil_div(p.seqlen_q, s.tile_m0), units = x.arch.compute_units;
  const double rows = double(tiles * s.tile_m0) / double(larger(1, p.seqlen_q));
  const double filled = rows * double(round_up(p.seqlen_k, s.tile_n0)) / double(larger(1, p.seqlen_k));
  const Wide blocks = Wide(p.batch) * p.heads_q * tiles * larger(1, p.num_splits);
  const double waves = ratio((blocks + units - 1) / units * units, blocks > 1 ? blocks : 1);
  // Edge code of heads loads element by element where K comes through registers.
  const double slow = s.pipeline != qr_async && (s.pad_head || s.pad_head_v) ? 1.5 : 1.0;
  return double(x.a.flops) * filled * waves * slow / flops_of(x.rate, p.type_q);
}

inline double seconds(const Schedule &s, const Query &x) {
  return x.rate.start + slower(compute_seconds(s, x), double(x.a.moved) / x.rate.memory);
}

}  // namespace ck_tile
}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
