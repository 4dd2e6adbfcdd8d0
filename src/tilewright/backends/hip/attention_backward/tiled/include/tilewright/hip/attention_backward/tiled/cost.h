// tiled: dq, dk and dv by matrix instructions, in kernels of our own.  What it takes.
//
// A model: its shares were not measured, because no AMD GPU was at hand.  Only the order of the answers matters.
#pragma once
#include <tilewright/hip/attention_backward/cost.h>
#include <tilewright/hip/attention_backward/tiled/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace tiled {

// Of what a well filled kernel of CK Tile reaches; scores are computed once for dq and once for dk and dv.
constexpr double kShare = 0.4, kTwice = 1.4;
// Staged kernels read the block's own lines again for every tile, and wait at three barriers for one.
constexpr double kStaged = 0.5;

inline double filled(int64_t lines, int64_t tile) { return double(round_up(lines, tile)) / double(larger(1, lines)); }

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionBackwardProblem &p = x.a.p;
  const double keys = filled(p.seqlen_k, s.tile_m) * filled(p.seqlen_q, s.tile_n);
  const double rows = filled(p.seqlen_q, s.tile_m) * filled(p.seqlen_k, s.tile_n);
  const double reuse = faster(1.0, double(s.tile_m) / 64) * (s.staged ? kStaged : 1.0);
  // Of five products of the three results' passes two are scores, which every share of the columns computes.
  const double again = 1 + 0.4 * double(s.column_waves - 1);
  const double products =
      double(x.a.flops) * kTwice * again * (keys + rows) / 2 / (flops_of(x.rate, p.type) * kShare * reuse);
  return 2 * x.rate.start + slower(products, 2 * double(x.a.moved) / x.rate.memory);
}

}  // namespace tiled
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
