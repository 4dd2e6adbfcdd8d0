// A packed B is panels of warp_tile_n columns.  A panel holds blocks of warp_tile_k, and a block is in the order
// in which the lanes of a wave load it: `groups` runs of k, each for all columns, contiguous for a lane.
#pragma once
#include <stdint.h>

namespace tw::hip {

struct PackedPlace {
  int64_t column, k;
};

// What lies at a place of a packed B whose panels are `deep`.
template <int columns, int depth> constexpr PackedPlace packed_place(int64_t at, int64_t deep) {
  constexpr int groups = columns == 32 ? 2 : 4, run = depth / groups;
  const int64_t inner = at % run, column = at / run % columns, group = at / (run * columns) % groups;
  const int64_t block = at / (depth * columns), blocks = deep / depth;
  return {block / blocks * columns + column, block % blocks * depth + group * run + inner};
}

}  // namespace tw::hip
