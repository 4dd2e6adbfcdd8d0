// The device's half of gradients of depthwise weights by matrix instructions.
#pragma once
#include <tilewright/cuda/conv/depthwise_mma/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/copies/copies.h>
#include <tilewright/cuda/primitives/mma.h>
#include <tilewright/cuda/primitives/shared_tiles.h>
#include <tilewright/cuda/primitives/tma.h>

namespace tw {

template <class Config> struct DepthwiseMmaMemory {
  using G = DepthwiseMma<Config>;
  char *stages;
  Barrier *full, *empty;
  TW_GPU DepthwiseMmaMemory() {
    stages = shared_tiles() + 1024;  // tiles begin at whole 1024 bytes
    full = reinterpret_cast<Barrier *>(stages - 1024), empty = full + G::Stages;
  }
};

// Where a tile of results lies: its first row, plane and image, and which plane of x it meets.
struct DepthwiseMmaPlace {
  int h, d, image, plane;
  bool there;
  TW_GPU DepthwiseMmaPlace(const DepthwiseMmaArgs &x, int number, int line) {
    const int all = x.chunks.quotient(number);
    image = x.results.quotient(all);
    h = (number - all * int(x.chunks.by)) * x.lines, d = all - image * int(x.results.by);
    plane = d * x.step - x.before[2] + line * x.apart;
    there = plane >= 0 && plane < x.depth;
  }
};

template <class Config> TW_GPU void produce_depthwise_mma(const TensorMap &map_x, const TensorMap &map_y,
                                                          const DepthwiseMmaArgs &x, int block, int part, int line) {
  using G = DepthwiseMma<Config>;
  const DepthwiseMmaMemory<Config> shared;
  Ring<G::Stages> ring;
  for (int tile = part; tile < x.tiles; tile += x.parts) {
    const DepthwiseMmaPlace at(x, tile, line);
    if (!at.there) continue;
    shared.empty[ring.stage].wait(ring.phase ^ 1);
    char *to = shared.stages + ring.stage * x.stage_bytes;
    Barrier *done = &shared.full[ring.stage];
    done->expect(uint32_t(x.box_bytes));
    tma_load_rows(&map_x, done, to, block * G::Channels, -x.before[0], at.h - x.before[1],
                  at.image * x.depth + at.plane);
    tma_load_rows(&map_y, done, to + x.x_bytes, block * G::Channels, -G::margin, at.h, at.image * x.out_depth + at.d);
    ring.next();
  }
}

// What a lane has of a row: two words a channel of its four pixels; eight channels.
struct DepthwiseMmaRow {
  uint32_t words[8][2];
  // Pixels 0 and 4 from here, and the same 8 further on: `second` is pixel 4.
  TW_GPU DepthwiseMmaRow(const char *first, const char *second) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 one = *reinterpret_cast<const uint4 *>(first + half * 512),
                  other = *reinterpret_cast<const uint4 *>(second + half * 512);
      const uint32_t a[4] = {one.x, one.y, one.z, one.w}, b[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[2 * i][half] = permute(a[i], b[i], 0x5410);
        words[2 * i + 1][half] = permute(a[i], b[i], 0x7632);
      }
    }
  }
};

// A warp's accumulators of its eight channels: [channel][filter's pixel of row 0, the next one's], as one instruction leaves them.
template <class Config> struct DepthwiseMmaAccumulators {
  using G = DepthwiseMma<Config>;
  using T = typename Config::A;
  float accum[8][4] = {};
  int x_first, x_second, y_first, y_second, next;

  // Swizzles go by the number of a pixel over 2: rows of x are 4 more than whole 8s, so that it depends on the lane only.
  TW_GPU DepthwiseMmaAccumulators(const DepthwiseMmaArgs &x, int chunk, int share) : next(share) {
    const int lane = threadIdx.x % 32, t = lane % 4, g = lane / 4, row = min(g, x.window_h);
    const int of_x = 2 * (row & 1) + (t >> 1), at = G::margin + t - g, of_y = at >> 1 & 3;
    x_first = (row * x.row + t) * G::pixel + (chunk ^ of_x) * 16;
    x_second = (row * x.row + t + 4) * G::pixel + (chunk ^ of_x ^ 2) * 16;
    y_first = at * G::pixel + (chunk ^ of_y) * 16;
    y_second = (at + 4) * G::pixel + (chunk ^ of_y ^ 2) * 16;
  }
  TW_GPU void tile(const DepthwiseMmaArgs &x, const char *stage) {
    const int units = x.lines / 2 * x.segments;
    int unit = next;
#pragma unroll 1
    for (; unit < units; unit += G::sharing) {
      const int pair = x.by_segments.quotient(unit), along = (unit - pair * x.segments) * G::deep * G::pixel;
      const char *of_x = stage + pair * 2 * x.row * G::pixel + along,
                 *of_y = stage + x.x_bytes + pair * 2 * x.row_of_y * G::pixel + along;
      const DepthwiseMmaRow pixels(of_x + x_first, of_x + x_second), upper(of_y + y_first, of_y + y_second);
      of_y += x.row_of_y * G::pixel;
      const DepthwiseMmaRow lower(of_y + y_first, of_y + y_second);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const uint32_t a[4] = {upper.words[c][0], lower.words[c][0], upper.words[c][1], lower.words[c][1]};
        mma(accum[c], a, pixels.words[c], T{}, T{});
      }
    }
    next = unit - units;
  }
};

template <class Config> TW_GPU void sum_depthwise_mma(const DepthwiseMmaArgs &x, int block, int part, int line) {
  using G = DepthwiseMma<Config>;
  const DepthwiseMmaMemory<Config> shared;
  const int warp = int(lane_at(threadIdx.x / 32, 0)), lane = threadIdx.x % 32;
  DepthwiseMmaAccumulators<Config> mine(x, warp % G::chunks, warp / G::chunks);
  Ring<G::Stages> ring;
#pragma unroll 1
  for (int tile = part; tile < x.tiles; tile += x.parts) {
    if (x.planes > 1 && !DepthwiseMmaPlace(x, tile, line).there) continue;
    shared.full[ring.stage].wait(ring.phase);
    mine.tile(x, shared.stages + ring.stage * x.stage_bytes);
    __syncwarp();
    if (lane == 0) shared.empty[ring.stage].arrive();
    ring.next();
  }
  named_barrier(1, G::working);  // nobody reads tiles any more
  float *staging = reinterpret_cast<float *>(shared.stages);
#pragma unroll
  for (int c = 0; c < 8; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2 *>(&staging[(((warp * 8 + c) * 2 + half) * 8 + lane / 4) * 8 + lane % 4 * 2]) = {
          mine.accum[c][half * 2], mine.accum[c][half * 2 + 1]};
  named_barrier(1, G::working);
  const int plane = x.window_h * x.window_w, first = block * G::Channels;
  for (int at = threadIdx.x; at < plane * G::Channels; at += G::working) {
    const int tap = at / G::Channels, c = at % G::Channels, h = tap / x.window_w, w = tap - h * x.window_w;
    if (first + c >= x.channels) continue;
    float sum = 0;
#pragma unroll
    for (int share = 0; share < G::sharing; ++share) {
      const float *from = staging + ((share * G::chunks + c / 8) * 8 + c % 8) * 128 + w * 8 + h;
      sum += from[0] + from[64 + 1];  // the second row of results meets the rows of x from the next one on
    }
    x.partial[((long long)part * x.taps + line * plane + tap) * x.channels + first + c] = sum;
  }
}

template <class Config>
TW_GPU void conv_depthwise_mma(const TensorMap &map_x, const TensorMap &map_y, const DepthwiseMmaArgs &x) {
  using G = DepthwiseMma<Config>;
  const DepthwiseMmaMemory<Config> shared;
  const int all = blockIdx.x / x.blocks, block = blockIdx.x - all * x.blocks, part = all / x.planes,
            line = all - part * x.planes;
  if (threadIdx.x == G::working) {
    let_next_kernel_in();
    tma_prefetch(&map_x);
    tma_prefetch(&map_y);
    for (int i = 0; i < G::Stages; ++i) shared.full[i].init(1), shared.empty[i].init(G::warps);
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= G::working) {
    if (threadIdx.x == G::working) produce_depthwise_mma<Config>(map_x, map_y, x, block, part, line);
  } else sum_depthwise_mma<Config>(x, block, part, line);
}

}  // namespace tw

#define TW_DEVICE_CONV_DEPTHWISE_MMA(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::DepthwiseMma<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::DepthwiseMmaArgs x) { \
    tw::conv_depthwise_mma<Config>(a, b, x); \
  } \
  TW_DEVICE_ADD_SPLITS(Symbol, tw::DepthwiseMmaArgs, tw::add_depthwise_splits<Config>)
#else
#define TW_DEVICE_CONV_DEPTHWISE_MMA(Config, Symbol)
#endif
