// The device's half of convolutions over halo tiles of pixels: one producer warp, two warpgroups take turns at tiles.
#pragma once
#include <tilewright/cuda/conv/halo/shape.h>
#include <tilewright/cuda/conv/blocks.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/tma_ws/kernel.h>

namespace tw {

template <class S> struct HaloMemory {
  char *halos, *taps, *out;
  Barrier *full_halo, *empty_halo, *full_tap, *empty_tap;
  TW_GPU HaloMemory() {
    char *raw = dynamic_shared();
    halos = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
    taps = halos + S::Halos * S::halo_bytes;
    out = taps + S::Taps * S::tap_bytes;
    full_halo = reinterpret_cast<Barrier *>(out + 2 * S::buffers * S::chunk);
    empty_halo = full_halo + S::Halos;
    full_tap = empty_halo + S::Halos;
    empty_tap = full_tap + S::Taps;
  }
};

// Tiles in turn; where weights stay, a block keeps to one n and z.
template <class S> struct HaloWork {
  const ConvHaloArgs &x;
  Work<TileScheduler::data_parallel> work;
  int m, step;
  TW_GPU explicit HaloWork(const ConvHaloArgs &args) : x(args), work(args.order, blockIdx.x, gridDim.x) {
    const int fixed = x.order.tiles_n * x.order.batch;
    m = blockIdx.x / fixed, step = gridDim.x / fixed;
  }
  TW_GPU bool next(Segment &s) {
    if (!x.resident) return work.next(s);
    if (m >= x.order.tiles_m) return false;
    const int fixed = blockIdx.x % (x.order.tiles_n * x.order.batch);
    s = {m, fixed % x.order.tiles_n, fixed / x.order.tiles_n, 0, 0, 0, 0};
    m += step;
    return true;
  }
};

// How many taps a kind of halo tile serves, along w or h.
TW_GPU int taps_of_halo(const ConvHaloArgs &x, int axis, const ConvTap &first) {
  return x.most[axis] - (int(first.by[axis]) > x.last_residue[axis]);
}

template <class S> TW_GPU void produce_halos(const TensorMap &map_a, const TensorMap &map_b, const ConvHaloArgs &x,
                                             const HaloMemory<S> &shared) {
  Ring<S::Halos> halos;
  Ring<S::Taps> taps;
  HaloWork<S> work(x);
  Segment s;
  bool there = false;        // the weights that stay
  let_next_kernel_in();      // that copies results
  wait_for_kernel_before();  // that copies operands
  while (work.next(s)) {
    const int line = s.z * x.lines_of_a_group, column = s.n * S::BN;
    Traversal at = traversal_from<S>(x, 0, s.m * S::BM);
    for (int kind = 0; kind < x.kinds; ++kind) {
      const ConvTap &first = x.taps[kind];
      const int along = taps_of_halo(x, 0, first), down = taps_of_halo(x, 1, first);
      for (int block = 0; block < x.blocks; ++block, halos.next()) {
        shared.empty_halo[halos.stage].wait(halos.phase ^ 1);
        Barrier *done = &shared.full_halo[halos.stage];
        done->expect(x.halo * 128);
        at.channel = s.z * x.pixels_of_a_group + block * S::BK;
        tma_load_pixels<S::Spatial>(&map_a, done, shared.halos + halos.stage * S::halo_bytes, at,
                                    {first.by[0], first.by[1], first.by[2]});
        for (int w = 0, h = 0; h < down && !there; h += ++w == along, w = w == along ? 0 : w, taps.next()) {
          shared.empty_tap[taps.stage].wait(taps.phase ^ 1);
          Barrier *full = &shared.full_tap[taps.stage];
          full->expect(x.merged ? x.merged * x.rows_of_one * 128 : S::tap_bytes);
          const int counted = first.number + h * x.apart_of_taps[1] + w * x.apart_of_taps[0];
          const int number = x.last_tap < 0 ? counted : x.last_tap - counted;
          char *to = shared.taps + taps.stage * S::tap_bytes;
          for (int i = 0; i < x.merged; ++i)
            tma_load(&map_b, full, to + i * x.rows_of_one * 128, -i * x.columns_of_one,
                     (s.z * x.merged + i) * x.rows_of_one, number);
          if (x.merged) continue;
          if constexpr (S::MajorB) fetch<S::BN, 1, 1>(map_b, full, to, line + block * S::BK, column, number, 0, 0);
          else fetch<S::BN, 1, 0>(map_b, full, to, block * S::BK, line + column, number, 0, 0);
        }
      }
    }
    there = x.resident;
  }
}

// A tap's weights times the halo tile, moved by `rows`, on top of what was there (First: nothing).
template <class S, bool First> TW_GPU void multiply_tap(Accumulators<S> &d, uint64_t at_a, char *b) {
  hold_all<S>(d);
  wgmma_fence();
  const uint64_t at_b = S::MajorB ? operand(b, 1024, 8192) : operand(b);
  constexpr int b_next = S::MajorB ? 16 * 128 / 16 : 2;
  // Bytes from the first column: of columns side by side, 64 lie in a row of shared memory, and the next 64 behind them.
  const auto along = [](int column) { return S::MajorB ? column / 64 * 8192 + column % 64 * 2 : column * 128; };
#pragma unroll
  for (int kk = 0; kk < S::Steps; ++kk)
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i) {
      const int column = kk / S::Sharing * S::Slice;
      Wgmma<S::Slice, typename S::In, 0, S::MajorB>::run(
          *reinterpret_cast<float (*)[S::Slice / 2]>(&d[i][column / 2]), at_a + i * 8192 / 16 + kk * 2,
          at_b + kk * b_next + along(column) / 16, !First || kk % S::Sharing > 0);
    }
  wgmma_commit();
  hold_all<S>(d);
}

// One tile: the taps of every halo tile, one multiply in flight; what it has read goes back.
template <class S> struct HaloMultiply {
  const ConvHaloArgs &x;
  const HaloMemory<S> &shared;
  Ring<S::Halos> halos;
  Ring<S::Taps> taps;

  TW_GPU void skip() {
    halos.skip(x.kinds * x.blocks);
    if (!x.resident) taps.skip(x.taps_in_all * x.blocks);
  }
  TW_GPU void operator()(Accumulators<S> &d) {
    if (x.resident) taps = Ring<S::Taps>();
    const int count = x.kinds * x.blocks;
    int w = 0, h = 0, tap_before = 0, kind = 0, block = 0, along = x.most[0], down = x.most[1];
    shared.full_halo[halos.stage].wait(halos.phase);
    step<true>(d, 0);
    tap_before = taps.stage;
    taps.next();
    advance(w, h, along);
#pragma unroll 1
    for (int halo = 0; halo < count; ++halo) {
      const int here = halos.stage;
      if (halo > 0) shared.full_halo[here].wait(halos.phase);
#pragma unroll 1
      for (; h < down; advance(w, h, along)) {
        step<false>(d, h * x.reach[1] + w * x.reach[0]);
        wgmma_wait<1>();
        give_back(shared.empty_tap, tap_before, !x.resident);
        if (halo > 0 && h == 0 && w == 0) give_back(shared.empty_halo, here == 0 ? S::Halos - 1 : here - 1, true);
        tap_before = taps.stage;
        taps.next();
      }
      w = h = 0;
      halos.next();
      if (++block == x.blocks) {
        block = 0, ++kind;
        along = taps_of_halo(x, 0, x.taps[kind]), down = taps_of_halo(x, 1, x.taps[kind]);
      }
    }
    wgmma_wait<0>();
    hold_all<S>(d);
    give_back(shared.empty_tap, tap_before, !x.resident);
    give_back(shared.empty_halo, halos.stage == 0 ? S::Halos - 1 : halos.stage - 1, true);
  }

 private:
  static TW_GPU void advance(int &w, int &h, int along) {
    if (++w == along) w = 0, ++h;
  }
  template <bool First> TW_GPU void step(Accumulators<S> &d, int rows) const {
    shared.full_tap[taps.stage].wait(x.resident ? 0 : taps.phase);
    const uint64_t at = operand(shared.halos + halos.stage * S::halo_bytes) + rows * 8;
    multiply_tap<S, First>(d, at, shared.taps + taps.stage * S::tap_bytes);
  }
  static TW_GPU void give_back(Barrier *empty, int stage, bool really) {
    if (really && threadIdx.x % 128 == 0) empty[stage].arrive();
  }
};

template <class S, class Config> TW_GPU void multiply_halos(const TensorMap &map_e, const TensorMap &map_d,
                                                            const ConvHaloArgs &x, const HaloMemory<S> &shared) {
  const Warpgroup me;
  const Place<S> place;
  HaloMultiply<S> multiply{x, shared, {}, {}};
  RowEpilogueStore<S, Config> store_tile(map_e, map_d, x, me, shared);
  const int who = int(lane_at(uint32_t(me.who), 0));  // the same for a warp, as the compiler sees it
  if (S::turns && who == 1) named_arrive(4, 256);     // the first turn is the other's
  HaloWork<S> work(x);
  Segment s;
  for (int number = 0; work.next(s); ++number) {
    if ((number & 1) != who) {  // the other's: its halo tiles go by
      multiply.skip();
      continue;
    }
    Accumulators<S> d;
    store_tile.begin(s, place);
    if (S::turns) named_barrier(4 + who, 256);
    multiply(d);
    if (S::turns) named_arrive(4 + (who ^ 1), 256);
    store_tile(d, s, place);
  }
  store_tile.end();
}

template <class S, class Config> TW_GPU void conv_halo(const TensorMap &map_a, const TensorMap &map_b,
                                                       const TensorMap &map_e, const TensorMap &map_d,
                                                       const ConvHaloArgs &x) {
  const HaloMemory<S> shared;
  if (threadIdx.x == 0) {
    tma_prefetch(&map_a);
    tma_prefetch(&map_b);
    for (int i = 0; i < S::Halos; ++i) shared.full_halo[i].init(1), shared.empty_halo[i].init(1);
    for (int i = 0; i < S::Taps; ++i) shared.full_tap[i].init(1), shared.empty_tap[i].init(1);
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    deallocate_registers<40>();
    if (threadIdx.x < 32 && elect_one()) produce_halos<S>(map_a, map_b, x, shared);
  } else {
    allocate_registers<232>();
    multiply_halos<S, Config>(map_e, map_d, x, shared);
  }
}

}  // namespace tw

#define TW_DEVICE_CONV_HALO(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::ConvHalo<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::TensorMap e, const __grid_constant__ tw::TensorMap d, \
             const __grid_constant__ tw::ConvHaloArgs x) { \
    tw::conv_halo<tw::ConvHalo<Config>, Config>(a, b, e, d, x); \
  } \
  TW_DEVICE_CONV_BLOCKS(Config, Symbol)
#else
#define TW_DEVICE_CONV_HALO(Config, Symbol)
#endif
