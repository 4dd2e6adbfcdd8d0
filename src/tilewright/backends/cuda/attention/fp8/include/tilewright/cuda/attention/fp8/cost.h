// fp8: both products in e4m3 by wgmma, values transposed in shared memory on their way.  What it takes.
#pragma once
#include <tilewright/cuda/attention/cost.h>
#include <tilewright/cuda/attention/fp8/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace fp8 {

inline double seconds(const Schedule &s, const Query &x) {
  const Rates &r = x.rate;
  const int64_t tile_m = kRows * s.warpgroups, scores = tile_m * s.tile_n;
  const Traversal t = traversal(x.a, tile_m, s.tile_n, 1, tile_m);
  const double multiply = double(scores * (s.head_dim + s.head_dim_v)) / r.mma_fp8_macs;
  double weigh = double(scores) / r.mma_unit_scores;
  if (s.scored) weigh *= kScored;
  const double exposed = s.warpgroups > 1 ? 0.0 : faster(multiply, weigh);
  const double step = r.mma_fp8_tile + slower(multiply, weigh) + exposed;
  const double items = t.waves(x.arch.compute_units) * (t.steps * step + r.mma_item);
  return of_uneven_sequences(x.a, r.mma_start + slower(items, double(x.a.moved) / r.mma_memory));
}

}  // namespace fp8
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
