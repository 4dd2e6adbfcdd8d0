// How the host deals out the work of a kernel to the blocks that run at a time, as gpu/tile_order.h explains it, and
// what blocks that share a tile need of the workspace.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gpu/tile_order.h>

namespace tw::cuda {

// S: Dealt, the tile of a block, BM x BN, a step of k, BK, and how many blocks share a multiprocessor.  Arch: the kernel's.
template <class S, class Arch> struct Dealing {
  static constexpr int most_blocks = Arch::most_processors * S::together;
  static constexpr bool shares = S::Dealt == Deal::stream_k || S::Dealt == Deal::split_k;
  // Words where blocks meet, four a block, then a tile of sums for each block.
  static constexpr int64_t clear_bytes = shares ? most_blocks * 16 : 0;
  static constexpr int64_t bytes = clear_bytes + (shares ? int64_t(most_blocks) * S::BM * S::BN * 4 : 0);

  // Args: flags and partial.
  template <class Args> static void lend(Args &to, void *workspace) {
    if (!shares) return;
    to.flags = static_cast<unsigned *>(workspace);
    to.partial = reinterpret_cast<float *>(static_cast<char *>(workspace) + clear_bytes);
  }

  // The number of workers (blocks or clusters) to launch, of which `workers` run at a time, or so many times `together`.
  static int64_t deal(TileOrder &order, int64_t workers, int64_t together = 1) {
    const int64_t tiles = int64_t(order.tiles_m) * order.tiles_n * order.batch;
    order.parts = 1;
    if constexpr (S::Dealt == Deal::cluster_k) {  // one tile for each cluster, whose blocks end with it
      order.parts = S::Cluster;
      return tiles;
    }
    if constexpr (S::Dealt == Deal::stream_k) return stream(order, tiles, workers * together);
    if constexpr (S::Dealt == Deal::split_k) {
      split(order, tiles, workers, together);
      if (order.parts > 1) return tiles * order.parts;
    }
    return tiles < workers ? tiles : workers;
  }

 private:
  static int64_t stream(TileOrder &order, int64_t tiles, int64_t workers) {
    // What would not fill the last round; a round more where that is little, or a tile would go to too many.
    int64_t streamed = tiles % workers;
    if (streamed && streamed * 2 < workers && tiles > workers) streamed += workers;
    const int64_t share = ceil_div(streamed * order.steps, workers);
    order.streamed = int(streamed), order.share = int(share < 4 ? 4 : share);
    return tiles > streamed ? workers : ceil_div(tiles * order.steps, order.share);
  }
  static void split(TileOrder &order, int64_t tiles, int64_t workers, int64_t together) {
    // As many parts as run at the same time (they wait for each other), of at least four steps.
    const int64_t steps = order.steps;
    int64_t parts = tiles < workers ? workers / tiles : 1;
    if (parts > steps / 4) parts = steps < 8 ? 1 : steps / 4;
    if constexpr (S::together > 1) parts = balanced(tiles, steps, workers, workers * together);
    order.share = int(ceil_div(steps, parts));
    order.parts = int(ceil_div(steps, order.share));
  }
  // Of several blocks that share a multiprocessor: the busiest one should have little more to do than the others.
  // backends/cuda/split_k.py says the same.
  static int64_t balanced(int64_t tiles, int64_t steps, int64_t workers, int64_t room) {
    constexpr double meet = Arch::meet, sums = S::BM * S::BN * 8 / Arch::sums;
    int64_t best = 1;
    double least = 0;
    for (int64_t parts = 1; parts == 1 || (parts <= 16 && tiles * parts <= room && parts * 4 <= steps); ++parts) {
      const int64_t high = ceil_div(tiles * parts, workers);
      double seconds = double(ceil_div(steps, parts)) * S::step * (high > 1 ? double(high) : S::alone);
      if (parts > 1) seconds += meet + double(tiles * parts) * sums;
      if (parts == 1 || seconds < least) least = seconds, best = parts;
    }
    return best;
  }
};

}  // namespace tw::cuda
