// mla: heads of up to 576 elements whose values are the first 512 of their keys.  What it takes.
#pragma once
#include <tilewright/cuda/attention/cost.h>
#include <tilewright/cuda/attention/mla/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace mla {

// Scores, exponentials and values of a tile follow each other while the next tiles come.
inline double step_seconds(const Schedule &s, const Rates &r) {
  const int64_t scores = kRows * s.tile_n;
  double weigh = double(scores) / r.latent_unit_scores;
  if (s.scored) weigh *= kScored;
  const double work = double(scores * (s.head_dim + s.head_dim_v)) / r.latent_unit_macs + weigh + r.latent_step;
  const double stage = double(s.tile_n * s.head_dim * s.size_kv) / r.latent_unit_bytes;
  return slower(slower(work, stage), (work + r.latent_fetch + stage) / double(s.stages));
}

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  const int64_t batch = larger(1, p.batch), splits = larger(1, p.num_splits), units = x.arch.compute_units;
  const int64_t rows = p.varlen ? larger(1, p.total_q / batch) : p.seqlen_q, group = x.a.group;
  const Wide counted = Wide(ceil_div(rows * group, kRows)) * batch * p.heads_kv * splits;
  const Wide items = counted > 1 ? counted : 1, heads = Wide(batch) * p.heads_q * rows;
  double seen = ratio(x.a.pairs, heads > 1 ? heads : 1);
  if (x.a.bounded) seen += double(kRows) / double(group) / 2;
  const double steps = slower(1.0, faster(double(p.seqlen_k), seen) / double(splits) / double(s.tile_n));
  const double waves = x.a.bounded ? slower(1.0, ratio(items, units)) : double((items + units - 1) / units);
  const double read = double(x.a.moved - Wide(batch) * p.heads_kv * p.seqlen_k * p.head_dim_v * s.size_kv);
  const double taken = waves * (steps * step_seconds(s, r) + r.latent_item);
  return of_uneven_sequences(x.a, r.latent_start + slower(taken, read / r.latent_memory));  // a mla is read once
}

}  // namespace mla
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
