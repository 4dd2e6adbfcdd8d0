// Convolutions by the tma_ws pipeline: gemm/tma_ws/kernel.h with another way in.
#pragma once
#include <tilewright/cuda/conv/blocks.h>
#include <tilewright/cuda/conv/tma_ws/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/store_rows.h>
#include <tilewright/cuda/gemm/tma_ws/kernel.h>

namespace tw {

// Where a traversal starts: the pixel of that number of the grid, image by image.
template <class S> TW_GPU Traversal traversal_from(const ConvWsArgs &x, int channel, int pixel) {
  int at[3] = {0, 0, 0}, left = pixel;
#pragma unroll
  for (int i = 0; i < S::Spatial; ++i) {
    const int next = x.grid.size[i].quotient(left);
    at[i] = (left - next * int(x.grid.size[i].by)) * x.grid.step[i] + x.grid.first[i];
    left = next;
  }
  return {channel, at[0], at[1], at[2], left};
}

// One traversal of pixels for the blocks in `mask`; Parts: how many blocks fetch for each other.
template <class S, int Parts> TW_GPU void fetch_pixels(const TensorMap &map, Barrier *done, char *to,
                                                       const Traversal &at, const ConvTap &tap, uint16_t mask) {
  const Tap by{tap.by[0], tap.by[1], tap.by[2]};
  if constexpr (Parts == 1) tma_load_pixels<S::Spatial>(&map, done, to, at, by);
  else tma_load_pixels_multicast<S::Spatial>(&map, done, to, at, by, mask);
}

// Segments of the work; a class has as many k-blocks as it has taps.  One without any has a k-block outside of everything,
// which is zeros (a branch around the multiplication would have wgmma wait for itself).
template <class S> struct ConvWork {
  Work<S::Scheduler> work;
  const ConvWsArgs &x;

  TW_GPU explicit ConvWork(const ConvWsArgs &args)
      : work(args.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster, blockIdx.x % S::Cluster), x(args) {}

  TW_GPU bool next(Segment &s) {
    if (!work.next(s)) return false;
    if constexpr (S::by_classes) {
      const int first = x.first_tap[of(s)], end = x.first_tap[of(s) + 1];
      s.k1 = x.taps[first].number < x.taps_in_all ? (end - first) * x.blocks : 1;
    }
    return true;
  }
  TW_GPU int of(const Segment &s) const { return S::by_classes ? s.z / x.groups : 0; }
  TW_GPU int group(const Segment &s) const { return s.z - of(s) * x.groups; }
};

// forward, backward_data: a stage is one tap of the tile's pixels, as many channels as fit.
template <class S> TW_GPU void produce_taps(const TensorMap &map_a, const TensorMap &map_b, const ConvWsArgs &x,
                                            const SharedMemory<S> &shared, Ring<S::Stages> &ring) {
  Place<S> place;
  ConvWork<S> work(x);
  Segment s;
  while (work.next(s)) {
    const int group = work.group(s), column = (s.n * S::ClusterN + place.n) * S::BN;
    const int channel = group * x.pixels_of_a_group, line = group * x.lines_of_a_group;
    Traversal at = traversal_from<S>(x, 0, (s.m * S::ClusterM + place.m) * S::BM + place.n * S::pixels);
    int tap = x.first_tap[work.of(s)] + s.k0 / x.blocks, block = s.k0 % x.blocks;
    for (int step = s.k0; step < s.k1; ++step, ring.next()) {
      shared.empty[ring.stage].wait(ring.phase ^ 1);
      char *a = shared.stages + ring.stage * S::stage_bytes, *b = a + S::a_bytes;
      Barrier *done = &shared.full[ring.stage];
      done->expect(S::a_bytes + S::b_bytes);
      const int k = block * S::BK;
      const int number = x.taps[tap].number;
      at.channel = !S::by_classes || number < x.taps_in_all ? channel + k : x.pixels_of_a_group * x.groups;
      fetch_pixels<S, S::ClusterN>(map_a, done, a + place.n * S::pixels * 128, at, x.taps[tap], place.row());
      if constexpr (S::MajorB)
        fetch<S::BN, S::ClusterM, 1>(map_b, done, b, line + k, column, number, place.m, place.column());
      else fetch<S::BN, S::ClusterM, 0>(map_b, done, b, k, line + column, number, place.m, place.column());
      if (++block == x.blocks) block = 0, ++tap;
    }
  }
}

// backward_weight: a stage is 64 pixels, of the tile's filters and of 64 channels of some tap for each 64 columns.
template <class S> TW_GPU void produce_products(const TensorMap &map_a, const TensorMap &map_b, const ConvWsArgs &x,
                                                const SharedMemory<S> &shared, Ring<S::Stages> &ring) {
  constexpr int all = S::BN / 64, here = all / S::ClusterM;  // blocks of columns
  static_assert(all % S::ClusterM == 0, "each block fetches whole blocks of columns");
  Place<S> place;
  ConvWork<S> work(x);
  Segment s;
  while (work.next(s)) {
    const int row = (s.m * S::ClusterM + place.m) * S::BM, first = (s.n * S::ClusterN + place.n) * all;
    const int there = max(0, min(all, x.taps_in_all * x.blocks - first));
    const int channel = s.z * x.pixels_of_a_group, line = s.z * x.lines_of_a_group + row;
    for (int step = s.k0; step < s.k1; ++step, ring.next()) {
      shared.empty[ring.stage].wait(ring.phase ^ 1);
      char *a = shared.stages + ring.stage * S::stage_bytes, *b = a + S::a_bytes;
      Barrier *done = &shared.full[ring.stage];
      done->expect(S::a_bytes + there * 8192);
      fetch<S::BM, S::ClusterN, 1>(map_a, done, a, step * 64, line, 0, place.n, place.row());
      Traversal at = traversal_from<S>(x, 0, step * 64);
#pragma unroll
      for (int i = 0; i < here; ++i) {
        const int part = place.m * here + i, number = first + part;
        if (part >= there) break;
        const int tap = number / x.blocks;
        at.channel = channel + (number - tap * x.blocks) * 64;
        fetch_pixels<S, S::ClusterM>(map_b, done, b + part * 8192, at, x.taps[tap], place.column());
      }
    }
  }
}

template <class S> TW_GPU void produce_conv(const TensorMap &map_a, const TensorMap &map_b, const ConvWsArgs &x,
                                            const SharedMemory<S> &shared) {
  Ring<S::Stages> ring;
  let_next_kernel_in();      // that copies results
  wait_for_kernel_before();  // that copies operands
  if constexpr (S::variant == ConvVariant::backward_weight) produce_products<S>(map_a, map_b, x, shared, ring);
  else produce_taps<S>(map_a, map_b, x, shared, ring);
  if constexpr (S::Group > 1)  // nobody leaves while a neighbour may still write here or arrive here
    for (int i = 0; i < S::Stages; ++i, ring.next()) shared.empty[ring.stage].wait(ring.phase ^ 1);
}

// As consume.
template <class S, class Config> TW_GPU void multiply_conv(const TensorMap &map_e, const TensorMap &map_d,
                                                           const ConvWsArgs &x, const SharedMemory<S> &shared) {
  const Warpgroup me;
  Place<S> place;
  Ring<S::Stages> ring;
  typename conv_store<S::by_rows, S, Config>::type store_tile(map_e, map_d, x, me, shared);
  const int who = int(lane_at(uint32_t(me.who), 0));  // the same for a warp, as the compiler sees it
  int number = 0;
  if (S::PingPong && who == 1) named_arrive(4, 256);  // the first turn is the other's
  ConvWork<S> work(x);
  Segment s;
  while (work.next(s)) {
    const int steps = s.k1 - s.k0;
    if (S::PingPong && (number++ & 1) != who) {  // the other's: its stages go by
      ring.skip(steps);
      continue;
    }
    Accumulators<S> d;
    if (S::PingPong) named_barrier(4 + who, 256);
    multiply_segment<S>(d, steps, ring, shared, place, who, [&] { store_tile.begin(s, place); });
    if (S::PingPong) named_arrive(4 + (who ^ 1), 256);
    store_tile(d, s, place);
  }
  store_tile.end();
}

template <class S, class Config> TW_GPU void conv_tma_ws(const TensorMap &map_a, const TensorMap &map_b,
                                                         const TensorMap &map_e, const TensorMap &map_d,
                                                         const ConvWsArgs &x) {
  const SharedMemory<S> shared;
  if (threadIdx.x == 0) {
    tma_prefetch(&map_a);
    tma_prefetch(&map_b);
    for (int i = 0; i < S::Stages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init((S::ClusterM + S::ClusterN - 1) * (S::PingPong ? 1 : 2));
    }
    if (S::TmaStore)
      for (int i = 0; i < 2 * S::slots; ++i) shared.boxes[i].init(1);
    fence_barriers();
  }
  if (S::Cluster > 1) cluster_sync();
  else __syncthreads();
  if (threadIdx.x < 128) {
    deallocate_registers<40>();
    if (threadIdx.x < 32 && elect_one()) produce_conv<S>(map_a, map_b, x, shared);
  } else {
    allocate_registers<232>();
    multiply_conv<S, Config>(map_e, map_d, x, shared);
  }
  if (S::Cluster > 1) cluster_sync();
}

}  // namespace tw

#define TW_DEVICE_CONV_TMA_WS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::ConvWs<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::TensorMap e, const __grid_constant__ tw::TensorMap d, \
             const __grid_constant__ tw::ConvWsArgs x) { \
    tw::conv_tma_ws<tw::ConvWs<Config>, Config>(a, b, e, d, x); \
  } \
  TW_DEVICE_CONV_BLOCKS(Config, Symbol)
#else
#define TW_DEVICE_CONV_TMA_WS(Config, Symbol)
#endif
