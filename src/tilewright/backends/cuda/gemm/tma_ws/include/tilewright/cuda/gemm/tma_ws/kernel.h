// The tma_ws pipeline: one producer warpgroup loads tiles of A and B into a ring of stages with TMA, two or three
// consumer warpgroups multiply them with wgmma.  Blocks are persistent and take segment after segment of the work; the
// blocks of a cluster that need the same rows of A or columns of B each fetch a part for all of them.
//
// `cooperative`: they multiply parts of one tile.  `pingpong`: each has a tile of its own, and one
// multiplies while the other stores.
//
// `swap_ab`: the problem is transposed, E^T = B^T A^T, so that a handful of rows of A lie along n, where
// a tile may be as narrow as 8.
#pragma once
#include <tilewright/cuda/gemm/tma_ws/cluster.h>
#include <tilewright/cuda/gemm/tma_ws/producer.h>
#include <tilewright/cuda/gemm/tma_ws/epilogue_store.h>
#include <tilewright/cuda/gemm/tma_ws/consumer.h>

namespace tw {

// What is the same for all lanes of a warp anyhow, so that the compiler sees it too: it then lives in registers that wgmma
// and the branches around it read without a detour.
TW_GPU int same_for_warp(int x) { return int(lane_at(uint32_t(x), 0)); }

// The results of accumulators of two B, in which nothing is left to fuse.
template <class Config> struct PlainResults : Config {
  static constexpr auto epilogue = Epilogue::PassThrough;
};
template <class Config, bool Dual> struct left_to_fuse {
  using type = Config;
};
template <class Config> struct left_to_fuse<Config, true> {
  using type = PlainResults<Config>;
};
template <class S, class R, class Config> TW_GPU void gate(const Accumulators<S> &d, Accumulators<R> &to, float alpha) {
#pragma unroll
  for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
    for (int j = 0; j < R::BN / 2; ++j) to[i][j] = Finish<Config>::combine(alpha * d[i][j], d[i][j + R::BN / 2]);
}

// What a consumer warpgroup does: segment after segment, every other one where they take turns.
template <class S, class Config>
TW_GPU void consume(const TensorMap &map_e, const TensorMap &map_d, const TmaWsArgs &x, const SharedMemory<S> &shared) {
  const Warpgroup me;
  const int who = same_for_warp(me.who);
  using R = typename results_of<S, S::Dual>::type;
  Place<S> place;
  const Place<R> place_of_results;
  Ring<S::Stages> ring;
  const SharedMemory<R> shared_by_results;
  EpilogueStore<R, typename left_to_fuse<Config, S::Dual>::type> store_tile(map_e, map_d, x, me, shared_by_results);
  int number = 0;
  if (S::PingPong && who == 1) named_arrive(4, 256);  // the first turn is the other's
  Work<S::Scheduler> work(x.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster, blockIdx.x % S::Cluster);
  Segment s;
  while (work.next(s)) {
    const int steps = s.k1 - s.k0;
    if (S::PingPong && (number++ & 1) != who) {  // the other's: its stages go by
      ring.skip(steps);
      continue;
    }
    Accumulators<S> d;
    if (S::PingPong) {
      named_barrier(4 + who, 256);
      ring.stage = same_for_warp(ring.stage);
    }
    multiply_segment<S>(d, steps, ring, shared, place, who, [&] { store_tile.begin(s, place_of_results); });
    if (S::PingPong) named_arrive(4 + (who ^ 1), 256);
    if constexpr (S::ClusterK > 1) {
      reduce_across_cluster<S, Config>(d, s, x, me, shared);
    } else if constexpr (S::Dual) {
      Accumulators<R> results;
      gate<S, R, Config>(d, results, x.aux_operands[0].scale);
      store_tile(results, s, place_of_results);
    } else {
      store_tile(d, s, place_of_results);
    }
  }
  store_tile.end();
}

template <class S, class Config> TW_GPU void gemm_tma_ws(const TensorMap &map_a, const TensorMap &map_b,
                                                         const TensorMap &map_e, const TensorMap &map_d,
                                                         const TmaWsArgs &x) {
  const SharedMemory<S> shared;
  if (threadIdx.x == 0) {  // one thread: barriers made by the lanes of a warp, one each, took half a microsecond more
    if (!S::PackedA) tma_prefetch(&map_a);
    if (!S::PackedB) tma_prefetch(&map_b);
    if (S::Dual) tma_prefetch(&map_d);
    for (int i = 0; i < S::Stages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init((S::ClusterM + S::ClusterN - 1) * S::sharing);
    }
    if (S::TmaStore)
      for (int i = 0; i < S::Groups * S::slots; ++i) shared.boxes[i].init(1);
    fence_barriers();
  }
  // The producer has initialized the barriers and need not wait for the others, unless these are of other blocks.
  constexpr bool alone = S::Cluster == 1;
  constexpr int heed = S::threads - 96;  // threads: the producer warp, and those who multiply
  if (!alone) cluster_sync_relaxed();
  if (threadIdx.x >= 128) {  // in this order what feeds comes first in memory, where a short problem waits for it
    if (alone) named_barrier(1, heed);
    if (S::moves_registers) allocate_registers<S::consumer_registers>();
    consume<S, Config>(map_e, map_d, x, shared);
  } else {
    if (alone && threadIdx.x < 32) named_arrive(1, heed);
    if (S::moves_registers) deallocate_registers<S::producer_registers>();
    if (threadIdx.x < 32 && elect_one()) produce<S>(map_a, map_b, map_d, x, shared);
    if (S::ClusterK > 1) cluster_sync();  // with those that wait for the accumulators of the cluster
  }
  if (S::Cluster > 1) cluster_sync_relaxed();  // nobody leaves whom a neighbour still reads
}

}  // namespace tw
