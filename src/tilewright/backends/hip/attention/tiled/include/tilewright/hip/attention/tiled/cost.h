// tiled: tiles of rows and keys multiplied by matrix instructions, in a kernel of our own.  What it takes.
//
// A model: its shares were not measured, because no AMD GPU was at hand.  Only the order of the answers matters.
#pragma once
#include <tilewright/hip/attention/cost.h>
#include <tilewright/hip/attention/tiled/limits.h>

namespace tw {
namespace selection {
namespace hip_attention {
namespace tiled {

// Of what a well filled kernel of CK Tile reaches: one place in LDS, and two barriers a tile.
constexpr double kShare = 0.7;
constexpr double kScored = 1.5;     // how much longer scores take that something is done to
constexpr double kConverted = 1.2;  // elements that are converted on their way
constexpr double kLean = 1.5;       // queries that are read of LDS for every tile, and nothing fetched ahead

// Whole tiles of rows and keys, on as many compute units as there are blocks for.
inline double compute_seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  const int64_t heads_rows = larger(1, p.seqlen_q * x.a.group), tiles = ceil_div(heads_rows, s.tile_m);
  // A wave without rows multiplies nothing.
  const double rows = double(round_up(heads_rows, s.tile_m * s.wave * s.shares / s.threads)) / double(heads_rows);
  const double filled = rows * double(round_up(p.seqlen_k, s.tile_n)) / double(larger(1, p.seqlen_k));
  const Wide blocks = Wide(p.batch) * p.heads_kv * tiles * larger(1, p.num_splits);
  const int64_t units = x.arch.compute_units;
  const double waves = ratio((blocks + units - 1) / units * units, blocks > 1 ? blocks : 1);
  const double depth = double(larger(1, p.head_dim)) / double(larger(1, p.head_dim + p.head_dim_v));
  const double again = 1 + depth * double(s.shares - 1);  // scores that every share computes
  const double work = again * (s.scored ? kScored : 1.0) * (s.narrow ? kConverted : 1.0) * (s.lean ? kLean : 1.0);
  // Few rows meet a tile of keys: it comes to LDS for them alone.  Few threads leave a compute unit waiting.
  const double reuse = faster(1.0, 0.5 + double(s.tile_m) / 256) * faster(1.0, double(s.threads / s.wave) / 4);
  const double flops = s.size == 4 ? r.flops_fp32 : p.type_q == kFp16 ? r.flops_fp16 : r.flops_bf16;
  return double(x.a.flops) * filled * waves * work / (flops * kShare * reuse);
}

inline double seconds(const Schedule &s, const Query &x) {
  return x.rate.start + slower(compute_seconds(s, x), double(x.a.moved) / x.rate.memory);
}

}  // namespace tiled
}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
