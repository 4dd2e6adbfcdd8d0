// The device's half of gradients of weights over halo tiles of pixels.
#pragma once
#include <tilewright/cuda/conv/halo_wgrad/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/conv/tma_ws/kernel.h>

namespace tw {

// What a block accumulates: of which groups, filters, channels and plane of taps, and which of the pixels.
struct HaloWgradItem {
  int group, m, n, plane, part, first, end;
  TW_GPU explicit HaloWgradItem(const HaloWgradArgs &x) {
    int left = blockIdx.x;
    group = left % x.groups, left /= x.groups;
    m = left % x.blocks_m, left /= x.blocks_m;
    n = left % x.blocks_n, left /= x.blocks_n;
    plane = left % x.planes, part = left / x.planes;
    first = int((long long)x.chunks * part / x.parts), end = int((long long)x.chunks * (part + 1) / x.parts);
  }
};

template <class Config> struct HaloWgradMemory {
  using S = HaloWgrad<Config>;
  char *stages;
  Barrier *full, *empty;
  TW_GPU HaloWgradMemory() {
    stages = shared_tiles();
    full = reinterpret_cast<Barrier *>(stages + S::Halos * S::stage_bytes);
    empty = full + S::Halos;
  }
};

template <class Config> TW_GPU void produce_halo_wgrad(const TensorMap &map_x, const TensorMap &map_y,
                                                       const HaloWgradArgs &x, const HaloWgradMemory<Config> &shared) {
  using S = HaloWgrad<Config>;
  const HaloWgradItem item(x);
  Ring<S::Halos> ring;
  const Tap here{0, 0, 0}, moved{0, 0, uint16_t(item.plane * x.planes_apart)};
  for (int chunk = item.first; chunk < item.end; ++chunk, ring.next()) {
    shared.empty[ring.stage].wait(ring.phase ^ 1);
    char *to = shared.stages + ring.stage * S::stage_bytes;
    Barrier *done = &shared.full[ring.stage];
    done->expect(uint32_t(x.halo + S::KP) * 128);
    int at[3] = {0, 0, 0}, left = chunk * S::KP;
#pragma unroll
    for (int i = 0; i < S::Spatial; ++i) {
      const int next = x.grid.size[i].quotient(left);
      at[i] = left - next * int(x.grid.size[i].by), left = next;
    }
    const Traversal of_y{(item.group * x.merged * x.filters) + item.m * 64, at[0], at[1], at[2], left};
    const Traversal of_x{(item.group * x.merged * x.channels) + item.n * 64, at[0] + x.grid.first[0],
                         at[1] + x.grid.first[1], at[2] + x.grid.first[2], left};
    tma_load_pixels<S::Spatial>(&map_x, done, to, of_x, moved);
    tma_load_pixels<S::Spatial>(&map_y, done, to + S::x_bytes, of_y, here);
  }
}

// Three taps of a stage on top of what was there.  Taps there are not read the first one's rows, and do not leave.
template <class Config, int Columns, bool First>
TW_GPU void multiply_halo_wgrad(float (&accum)[3][Columns / 2], char *stage, const int (&rows)[3]) {
  using S = HaloWgrad<Config>;
#pragma unroll
  for (int t = 0; t < S::each; ++t) hold(accum[t]);
  wgmma_fence();
  const uint64_t at_y = operand(stage + S::x_bytes, 1024, 8192), at_x = operand(stage, 1024, 8192);
#pragma unroll
  for (int kk = 0; kk < S::KP / 16; ++kk)
#pragma unroll
    for (int t = 0; t < S::each; ++t)
      Wgmma<Columns, typename S::In, 1, 1>::run(accum[t], at_y + kk * 128, at_x + rows[t] * 8 + kk * 128,
                                                !First || kk > 0);
  wgmma_commit();
#pragma unroll
  for (int t = 0; t < S::each; ++t) hold(accum[t]);
}

// Accumulators of filters and channels of one group leave; a thread has two neighbours of every eight columns, of two rows.
template <int Columns> TW_GPU void store_halo_wgrad(const HaloWgradArgs &x, const HaloWgradItem &item,
                                                    const float (&accum)[Columns / 2], int tap) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  float *to = x.partial + item.part * x.count;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int filter = item.m * 64 + thread / 32 * 16 + lane / 4 + half * 8, group = x.by_filters.quotient(filter);
    if (group >= x.merged) continue;
    const long long line = (long long)(item.group * x.merged * x.filters + filter) * (x.taps * x.planes) + tap;
#pragma unroll
    for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int channel = item.n * 64 + j * 8 + lane % 4 * 2 + i - group * x.channels;
        if (channel >= 0 && channel < x.channels) to[line * x.channels + channel] = accum[j * 4 + half * 2 + i];
      }
  }
}

// Columns: of the 64 channels that come, those that are there.
template <class Config, int Columns>
TW_GPU void sum_halo_wgrad(const HaloWgradArgs &x, const HaloWgradMemory<Config> &shared, int who) {
  using S = HaloWgrad<Config>;
  const HaloWgradItem item(x);
  int rows[3];
#pragma unroll
  for (int t = 0; t < S::each; ++t) {
    const int tap = who * S::each + t < x.taps ? who * S::each + t : 0, line = tap / x.window_w;
    rows[t] = line * x.reach[1] + (tap - line * x.window_w) * x.reach[0];
  }
  float accum[3][Columns / 2];
  Ring<S::Halos> ring;
  shared.full[ring.stage].wait(ring.phase);
  multiply_halo_wgrad<Config, Columns, true>(accum, shared.stages + ring.stage * S::stage_bytes, rows);
  int before = ring.stage;
  ring.next();
#pragma unroll 1
  for (int chunk = item.first + 1; chunk < item.end; ++chunk, ring.next()) {
    shared.full[ring.stage].wait(ring.phase);
    multiply_halo_wgrad<Config, Columns, false>(accum, shared.stages + ring.stage * S::stage_bytes, rows);
    wgmma_wait<1>();
    if (threadIdx.x % 128 == 0) shared.empty[before].arrive();
    before = ring.stage;
  }
  wgmma_wait<0>();
#pragma unroll
  for (int t = 0; t < S::each; ++t) hold(accum[t]);
  if (threadIdx.x % 128 == 0) shared.empty[before].arrive();
#pragma unroll
  for (int t = 0; t < S::each; ++t)
    if (who * S::each + t < x.taps)
      store_halo_wgrad<Columns>(x, item, accum[t], item.plane * x.taps + who * S::each + t);
}

template <class Config>
TW_GPU void conv_halo_wgrad(const TensorMap &map_x, const TensorMap &map_y, const HaloWgradArgs &x) {
  using S = HaloWgrad<Config>;
  const HaloWgradMemory<Config> shared;
  if (threadIdx.x == 0) {
    let_next_kernel_in();
    tma_prefetch(&map_x);
    tma_prefetch(&map_y);
    for (int i = 0; i < S::Halos; ++i) shared.full[i].init(1), shared.empty[i].init(3);
    fence_barriers();
  }
  __syncthreads();
  wait_for_kernel_before();  // that copies operands
  if (threadIdx.x < 128) {
    deallocate_registers<40>();
    if (threadIdx.x < 32 && elect_one()) produce_halo_wgrad<Config>(map_x, map_y, x, shared);
  } else {
    allocate_registers<152>();
    const int who = int(lane_at(threadIdx.x / 128, 0)) - 1;  // the same for a warp
    if (x.merged * x.channels <= 32) sum_halo_wgrad<Config, 32>(x, shared, who);
    else sum_halo_wgrad<Config, 64>(x, shared, who);
  }
}

// The splits of a weight, in order.
template <class Config> TW_GPU void add_halo_wgrad(const HaloWgradArgs &x) {
  int at;
  float sum;
  if (add_splits(x.partial, x.count, x.parts, at, sum)) store_weight<Config>(x, at, sum);
}

}  // namespace tw

#define TW_DEVICE_CONV_HALO_WGRAD(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::HaloWgrad<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::HaloWgradArgs x) { \
    tw::conv_halo_wgrad<Config>(a, b, x); \
  } \
  TW_DEVICE_ADD_SPLITS(Symbol, tw::HaloWgradArgs, tw::add_halo_wgrad<Config>)
#else
#define TW_DEVICE_CONV_HALO_WGRAD(Config, Symbol)
#endif
