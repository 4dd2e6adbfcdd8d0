// How the host deals out the work of a kernel to the blocks that run at a time, as gpu/tile_order.h explains it, and
// what blocks that share a tile need of the workspace.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gpu/tile_order.h>
#include <tilewright/select/parts_of_k.h>

namespace tw::cuda {

// S: Scheduler, the tile of a block, BM x BN, a k-block, BK, and how many blocks share a multiprocessor.  Arch: the kernel's.
template <class S, class Arch> struct HostTileScheduler {
  static constexpr int most_blocks = Arch::most_processors * S::ctas_per_sm;
  static constexpr bool shares = S::Scheduler == TileScheduler::stream_k || S::Scheduler == TileScheduler::split_k;
  // Words by which blocks synchronize, four a block, then a tile of accumulators for each block.
  static constexpr int64_t clear_bytes = shares ? most_blocks * 16 : 0;
  static constexpr int64_t bytes = clear_bytes + (shares ? int64_t(most_blocks) * S::BM * S::BN * 4 : 0);

  // Args: flags and partial.
  template <class Args> static void lend(Args &to, void *workspace) {
    if (!shares) return;
    to.flags = static_cast<unsigned *>(workspace);
    to.partial = reinterpret_cast<float *>(static_cast<char *>(workspace) + clear_bytes);
  }

  // The number of workers (blocks or clusters) to launch, of which `workers` run at a time, or so many times `ctas_per_sm`.
  static int64_t schedule(TileOrder &order, int64_t workers, int64_t ctas_per_sm = 1) {
    const int64_t tiles = int64_t(order.tiles_m) * order.tiles_n * order.batch;
    order.parts = 1;
    if constexpr (S::Scheduler == TileScheduler::cluster_k) {  // one tile for each cluster, whose blocks end with it
      order.parts = S::Cluster;
      return tiles;
    }
    if constexpr (S::Scheduler == TileScheduler::stream_k) return stream(order, tiles, workers * ctas_per_sm);
    if constexpr (S::Scheduler == TileScheduler::split_k) {
      split(order, tiles, workers, ctas_per_sm);
      if (order.parts > 1) return tiles * order.parts;
    }
    return tiles < workers ? tiles : workers;
  }

 private:
  static int64_t stream(TileOrder &order, int64_t tiles, int64_t workers) {
    const int64_t streamed = selection::streamed_tiles(tiles, workers);
    order.streamed = int(streamed), order.share = int(selection::streamed_share(streamed, order.steps, workers));
    return tiles > streamed ? workers : ceil_div(tiles * order.steps, order.share);
  }
  static void split(TileOrder &order, int64_t tiles, int64_t workers, int64_t ctas_per_sm) {
    const int64_t steps = order.steps;
    int64_t parts = 0;
    if constexpr (S::ctas_per_sm > 1) {
      constexpr selection::PartCosts costs{S::step, S::alone, Arch::sync, S::BM * S::BN * 8 / Arch::sums};
      parts = selection::balanced_parts(tiles, steps, workers, workers * ctas_per_sm, costs);
    } else {
      parts = selection::parts_at_once(tiles, steps, workers);
    }
    order.share = int(ceil_div(steps, parts));
    order.parts = int(ceil_div(steps, order.share));
  }
};

}  // namespace tw::cuda
