// What the costs of attention on NVIDIA GPUs share: rates, and the tiles of keys that blocks meet.
#pragma once
#include <math.h>
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {

// Constants of the arch table (arch/fits.json); what each means stands in rates.py.
// clang-format off
#define TW_SELECT_CUDA_ATTENTION_RATES(X) \
  X(trip) X(start) X(item) X(unit_macs) X(hidden_score) X(key) X(step) X(unit_bytes) \
  X(memory) X(box) X(carry) X(carried) X(most_carried) X(row) X(more_parts) X(loop_macs) \
  X(loop_key) X(mma_start) X(mma_item) X(mma_sync) X(mma_unit_macs) X(mma_unit_scores) X(mma_widened) \
  X(mma_unit_bytes) X(mma_memory) X(mma_busy_bytes) X(mma_fp8_macs) X(mma_fp8_tile) X(latent_start) X(latent_item) \
  X(latent_unit_macs) X(latent_unit_scores) X(latent_step) X(latent_fetch) X(latent_unit_bytes) X(latent_memory)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CUDA_ATTENTION_RATES)

#define TW_SELECT_CUDA_ATTENTION_ARCH(X) X(compute_units) X(wgmma)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CUDA_ATTENTION_ARCH)

using Query = AttentionQuery<Rates, Arch>;

constexpr double kUneven = 1.4, kTail = 0.5;  // how much longer the longest sequences take; of a wave, at the end
constexpr double kScored = 2.0;               // how much longer scores take that something is done to

// All kernels but the work-balanced ones wait for the longest sequence of few rows.
inline double of_uneven_sequences(const Attention &a, double seconds) {
  const bool waits = a.p.family == kForward && a.group * a.p.seqlen_q <= kRows && lengths_differ(a.p);
  return seconds * (waits ? kUneven : 1.0);
}

// What blocks meet, about: the same account for every pipeline, so that their estimates may be compared.
struct Traversal {
  Wide items;
  double steps;  // tiles of keys that an item meets, on average
  bool differ;   // in how many

  // Of items on so many places at once.
  double waves(int64_t places) const {
    if (differ && items > places) return ratio(items, places) + kTail;
    return double((items + places - 1) / places);
  }
};

inline int64_t greatest_divisor(int64_t x, int64_t y) {
  while (y) {
    const int64_t rest = x % y;
    x = y, y = rest;
  }
  return x;
}

// Of tiles that hold the rows of `group` query heads together; `apart` rows of a tile pass by what they do not see.
inline Traversal traversal(const Attention &a, int64_t tile_m, int64_t tile_n, int64_t group, int64_t apart) {
  const AttentionProblem &p = a.p;
  const int64_t batch = larger(1, p.batch), splits = larger(1, p.num_splits), heads = p.heads_q / group;
  int64_t rows = p.seqlen_q;
  double longer = 1.0, row_tiles;
  if (p.varlen) {  // most rows are of long sequences; half of a sequence's last tile of rows is empty
    rows = larger(1, p.total_q / batch);
    longer = double(rows + p.seqlen_q) / 2 / double(rows);
    row_tiles = ratio(Wide(p.total_q) * group, tile_m) + double(batch) / 2;
  } else {
    row_tiles = double(Wide(ceil_div(rows * group, tile_m)) * batch);
  }
  const Wide counted = Wide(row_tiles * double(heads) * double(splits)), items = counted > 1 ? counted : 1;
  if (!a.bounded) {
    const int64_t mean = p.varlen && p.pages == kNoPages ? p.total_k / batch : p.seqlen_k;
    const int64_t keys = p.varlen ? smaller(p.seqlen_k, int64_t(double(mean) * longer)) : p.seqlen_k;
    const int64_t steps = ceil_div(ceil_div(keys, tile_n), splits);
    return {items, double(larger(1, steps)), p.varlen != 0};
  }
  double seen = ratio(a.pairs, Wide(batch) * p.heads_q * larger(1, rows)) * longer;
  if (p.window_left >= 0 && p.window_right >= 0)
    seen = faster(seen, double(p.window_left + p.window_right + 1 + p.sink_tokens));
  // What hangs over at the ends of the window: half of the rows, and of keys what no tile of rows divides.
  const double alike = double(apart) / double(group);
  double over = alike / 2 + double(tile_n - greatest_divisor(larger(1, int64_t(alike)), tile_n)) / 2;
  if (p.window_left >= 0) over += double(tile_n) / 2;
  const double steps = faster(double(ceil_div(p.seqlen_k, tile_n)), (seen + over) / double(tile_n));
  return {items, slower(1.0, steps / double(splits)), true};
}

}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
