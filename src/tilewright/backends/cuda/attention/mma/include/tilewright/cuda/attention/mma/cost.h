// mma, mma_decode: cp.async feeds mma.sync; any stride, pages of any layout, fp8 widened on its way.  What it takes.
#pragma once
#include <tilewright/cuda/attention/cost.h>
#include <tilewright/cuda/attention/mma/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace mma {

constexpr double kBesideWgmma = 1.4;  // guessed constants stand back behind the fitted ones of kernels with wgmma
constexpr double kAlone = 1.3;  // how much longer an iteration takes where one block has the multiprocessor for itself
// Of the shorter of work and fetch, what the longer does not hide where blocks fill the device and fetch what others
// fetched before: the warps that multiply issue the copies too, and all of them meet at the L2 cache.  Guessed.
constexpr double kShown = 0.7;

// A tile of keys in each of the blocks of a multiprocessor; `again` is how many of its fetches others made before.
inline double step_seconds(const Schedule &s, const Rates &r, double again) {
  const int64_t scores = s.tile_m * s.tile_n, heads = s.head_dim + s.head_dim_v;
  const double multiply = double(scores * heads) / r.mma_unit_macs;
  double weigh = double(scores) / r.mma_unit_scores;
  if (s.scored) weigh *= kScored;
  const int64_t stage = s.tile_n * heads * s.size_kv;
  const double widen = s.narrow ? double(stage * s.warps_m) / r.mma_widened : 0.0;
  const double work = (multiply + weigh + widen) * double(s.ctas_per_sm) * (s.ctas_per_sm == 1 ? kAlone : 1.0);
  const double flying = r.mma_busy_bytes / (double(s.kv_stages * stage * s.ctas_per_sm) / 2);
  const double fetch = double(stage * s.ctas_per_sm) / r.mma_unit_bytes * slower(1.0, flying);
  const double busy = work + r.mma_sync * (s.warps_n > 1 ? 1.0 : 0.0);
  return slower(busy, fetch) + kShown * again * faster(busy, fetch);
}

inline double seconds(const Schedule &s, const Query &x) {
  const Rates &r = x.rate;
  const Traversal t = traversal(x.a, s.tile_m, s.tile_n, s.packs ? x.a.group : 1, s.tile_m);
  const AttentionProblem &p = x.a.p;
  const int64_t places = x.arch.compute_units * s.ctas_per_sm;
  const Wide once = Wide(larger(1, p.batch)) * larger(1, p.heads_kv) * larger(1, p.num_splits);
  const bool crowded = t.items > places && !x.arch.wgmma;  // what was compared with times of sm_90a stays as it was
  const double again = crowded ? 1.0 - 1.0 / slower(1.0, ratio(t.items, once)) : 0.0;
  const double items = t.waves(places) * (t.steps * step_seconds(s, r, again) + r.mma_item);
  const double taken = r.mma_start + slower(items, double(x.a.moved) / r.mma_memory);
  return of_uneven_sequences(x.a, x.arch.wgmma ? taken * kBesideWgmma : taken);
}

}  // namespace mma
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
