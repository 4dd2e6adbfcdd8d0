// Into how many splits the k of a tile is divided, and what blocks of stream-K have to do: decided by the host's half of a
// kernel as it launches, and by its cost before, which count with the same function.
#pragma once
#include <tilewright/select/fields.h>

namespace tw {
namespace selection {

constexpr int64_t kLeastSteps = 4, kMostParts = 16;  // of a split, and of a tile

// Seconds that decide: a k-block beside other blocks, how many times as long without them, until all splits are there,
// and the accumulators of one split of a tile.
struct PartCosts {
  double step, alone, sync, accum;
};

inline double seconds_in_parts(int64_t parts, int64_t tiles, int64_t steps, int64_t workers, const PartCosts &c) {
  const int64_t high = ceil_div(tiles * parts, workers);
  const double traversed = double(ceil_div(steps, parts)) * c.step * (high > 1 ? double(high) : c.alone);
  return parts > 1 ? traversed + (c.sync + double(tiles * parts) * c.accum) : traversed;
}

// As many splits as run at the same time (they wait for each other).
inline int64_t parts_at_once(int64_t tiles, int64_t steps, int64_t workers) {
  const int64_t parts = tiles < workers ? workers / larger(1, tiles) : 1;
  if (parts <= steps / kLeastSteps) return parts;
  return larger(1, steps / kLeastSteps);
}

// Of several blocks that share a multiprocessor: the busiest one should have little more to do than the others.
inline int64_t balanced_parts(int64_t tiles, int64_t steps, int64_t workers, int64_t room, const PartCosts &c) {
  int64_t best = 1;
  double least = seconds_in_parts(1, tiles, steps, workers, c);
  for (int64_t parts = 2; parts <= kMostParts && tiles * parts <= room && parts * kLeastSteps <= steps; ++parts) {
    const double seconds = seconds_in_parts(parts, tiles, steps, workers, c);
    if (seconds < least) least = seconds, best = parts;
  }
  return best;
}

// As many as fill all multiprocessors once, twice and so on, up to `together` blocks each.
inline int64_t filling_parts(int64_t tiles, int64_t steps, int64_t workers, int64_t together, const PartCosts &c) {
  int64_t best = 1;
  double least = seconds_in_parts(1, tiles, steps, workers, c);
  for (int64_t full = 1; full <= together; ++full) {
    const int64_t parts = larger(1, smaller(workers * full / tiles, steps / kLeastSteps));
    const double seconds = seconds_in_parts(parts, tiles, steps, workers, c);
    if (seconds < least) least = seconds, best = parts;
  }
  return best;
}

// Splits of equal k-blocks: there may be fewer.
inline int64_t even_parts(int64_t steps, int64_t parts) { return ceil_div(steps, ceil_div(steps, parts)); }

// stream-K: tiles that would not fill the last round, which all share; a round more where that is little, or a tile
// would go to too many.  And the k-blocks of a share.
inline int64_t streamed_tiles(int64_t tiles, int64_t workers) {
  const int64_t rest = tiles % workers;
  return rest && rest * 2 < workers && tiles > workers ? rest + workers : rest;
}
inline int64_t streamed_share(int64_t streamed, int64_t steps, int64_t workers) {
  return larger(kLeastSteps, ceil_div(streamed * steps, workers));
}

}  // namespace selection
}  // namespace tw
