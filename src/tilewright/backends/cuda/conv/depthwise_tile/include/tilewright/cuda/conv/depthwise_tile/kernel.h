// The device's half of depthwise convolutions over tiles.
#pragma once
#include <tilewright/cuda/conv/depthwise_tile/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/conv/depthwise/rows.h>
#include <tilewright/cuda/primitives/tma.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

template <class Config> struct TileMemory {
  using G = DepthwiseTile<Config>;
  Barrier *full, *empty;
  float *taps;
  char *stages;
  int x_bytes, stage_bytes;
  TW_GPU explicit TileMemory(const DepthwiseTileArgs &x) {
    char *raw = dynamic_shared();
    raw += (128 - (shared_address(raw) & 127)) % 128;
    full = reinterpret_cast<Barrier *>(raw), empty = full + G::most_stages;
    taps = reinterpret_cast<float *>(raw + G::barriers);
    stages = raw + G::barriers + (G::weight ? 0 : (x.taps * G::Channels * 4 + 127) / 128 * 128);
    x_bytes = (G::weight ? 1 : x.planes) * x.rows * x.row * G::pixel;
    stage_bytes = x_bytes + (G::weight ? x.lines * x.row_of_y * G::pixel : 0);
  }
};

// Where a tile of results lies.
template <class G> struct TilePlace {
  int w, h, d, image;
  TW_GPU TilePlace(const DepthwiseTileArgs &x, int number) {
    const int line = x.segments.quotient(number), plane = x.chunks.quotient(line);
    image = x.results.quotient(plane);
    w = (number - line * int(x.segments.by)) * x.strips * G::TW;
    h = (line - plane * int(x.chunks.by)) * x.lines;
    d = plane - image * int(x.results.by);
  }
};

// The stages go round; every user of one counts for itself.
struct TileRing {
  int stage = 0;
  uint32_t phase = 0;
  TW_GPU void next(int stages) {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
};

// One lane issues the loads of the tiles: of x, of backward_weight those of y too.  `line`: the plane of taps that is summed there.
template <class Config> TW_GPU void produce_tiles(const TensorMap &map_x, const TensorMap &map_y,
                                                  const DepthwiseTileArgs &x, const TileMemory<Config> &shared,
                                                  int block, int part, int line) {
  using G = DepthwiseTile<Config>;
  TileRing ring;
  const int channel = block * G::Channels;
  for (int tile = part; tile < x.tiles; tile += x.parts, ring.next(x.stages)) {
    shared.empty[ring.stage].wait(ring.phase ^ 1);
    const TilePlace<G> at(x, tile);
    char *to = shared.stages + ring.stage * shared.stage_bytes;
    Barrier *done = &shared.full[ring.stage];
    const int w = at.w * G::S - x.before[0], h = at.h * G::S - x.before[1], d = at.d * x.step - x.before[2];
    int there = 0;
    for (int k = G::weight ? line : 0; k < (G::weight ? line + 1 : x.planes); ++k)
      there += d + k * x.apart >= 0 && d + k * x.apart < x.depth;
    const int lines_of_y = G::weight && there ? x.lines : 0;
    done->expect(uint32_t(there * x.rows * x.row + lines_of_y * x.row_of_y) * G::pixel);
    for (int k = G::weight ? line : 0; k < (G::weight ? line + 1 : x.planes); ++k) {
      const int plane = d + k * x.apart;
      if (plane < 0 || plane >= x.depth) continue;
      tma_load_rows(&map_x, done, to + (G::weight ? 0 : k) * x.rows * x.row * G::pixel, channel, w, h,
                    at.image * x.depth + plane);
    }
    if (lines_of_y) tma_load_rows(&map_y, done, to + shared.x_bytes, channel, at.w, at.h, at.image * x.out[2] + at.d);
  }
}

// Count neighbouring pixels of a tile, a lane's two channels of each.
template <class Config, int Count> struct TileLine {
  using G = DepthwiseTile<Config>;
  float v[Count][2];
  TW_GPU explicit TileLine(const char *from) {
    Pixel<typename Config::A, 2> pixels[Count];
#pragma unroll
    for (int j = 0; j < Count; ++j)
      pixels[j].word = *reinterpret_cast<const typename Pixel<typename Config::A, 2>::Words *>(from + j * G::pixel);
#pragma unroll
    for (int j = 0; j < Count; ++j) pixels[j].widen(v[j]);
  }
};

// What the units of a warp have in common: which of them come next, and where they lie in a tile.
template <class Config> struct TileUnits {
  using G = DepthwiseTile<Config>;
  const DepthwiseTileArgs &x;
  int warp, lane, next;  // next: this warp's first of the tile

  TW_GPU explicit TileUnits(const DepthwiseTileArgs &args)
      : x(args), warp(threadIdx.x / 32), lane(threadIdx.x % 32), next(warp) {}
  // unit(strip, row of results in the tile, whether there is one), for each of this warp's.
  template <class Unit> TW_GPU void each(Unit unit) {
    int group = next;
#pragma unroll 1
    for (; group < x.groups; group += G::warps) {
      const int number = group * G::each + lane / G::Lanes, up = x.by_strips.quotient(number);
      const bool there = G::each == 1 || up * G::TH < x.lines;
      const int line = there ? up : x.lines / G::TH - 1;
      unit(number - up * int(x.by_strips.by), line * G::TH, there);
    }
    next = group - x.groups;
  }
};

// forward, backward_data.
template <class Config> struct TilePixels {
  using G = DepthwiseTile<Config>;
  using C = typename Config::C;
  using D = typename Config::D;
  using Weights = Some<float, 2>;
  static constexpr int most_d = Config::num_d > 0 ? Config::num_d : 1;
  // The instruction that rounds two results makes negative ones 0 besides.
  static constexpr bool rounded_up = Config::epilogue == Epilogue::Relu && sizeof(C) == 2;
  // A bias is what accumulators start from, and costs nothing.
  static constexpr bool begins = Config::num_d > 0 && !Finish<Config>::multiplies;
  const DepthwiseTileArgs &x;
  const float *taps;  // of this lane's channels, [tap][channels of the block]
  int channel;
  bool alike;              // D tensors are the same for all pixels,
  D same[most_d][2] = {};  // and these of this lane's channels, as they come: nobody waits for them before the end
  float accum[G::TH * G::Up][G::TW * G::Up][2];

  // What is the same for all units.
  TW_GPU TilePixels(const DepthwiseTileArgs &args, const float *of, int first, bool inside)
      : x(args), taps(of), channel(first), alike(true) {
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      alike = alike && x.finish.d_row[t] == 0;
      const D *from = static_cast<const D *>(x.finish.d[t]);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (inside && x.finish.d_row[t] == 0) same[t][i] = from[(channel + i) * x.finish.d_column[t]];
    }
  }
  TW_GPU void unit(const char *from, uint32_t planes) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float first = 0;
      if (begins && alike)
#pragma unroll
        for (int d = 0; d < Config::num_d; ++d) first += to_float(same[d][c]);
#pragma unroll
      for (int i = 0; i < G::TH * G::Up; ++i)
#pragma unroll
        for (int t = 0; t < G::TW * G::Up; ++t) accum[i][t][c] = first;
    }
    const int row = x.row * G::pixel;
    if constexpr (G::Up > 1) {
      if (x.odd) strides<1>(from, row);
      else strides<0>(from, row);
      return;
    }
#pragma unroll 1
    for (int k = 0; k < x.planes; ++k)
      if (planes >> k & 1) plane(from + k * x.rows * row, row, taps + k * G::K * G::K * G::Channels);
  }
  // backward_data with strides: a pixel is met by every second tap of the results of a stride.
  template <int Odd> TW_GPU void strides(const char *from, int row) {
#pragma unroll
    for (int r = 0; r < G::high; ++r) {
      const TileLine<Config, G::reach> line(from + r * row);
#pragma unroll
      for (int i = 0; i < G::TH * 2; ++i) {
        const int high = i % 2 - Odd - 2 * (r - i / 2) + G::K - 1;
        if (r < i / 2 || r - i / 2 >= G::wide || high < 0 || high >= G::K) continue;
#pragma unroll
        for (int k = 0; k < G::K; ++k) {
          const int side = (k + Odd) % 2,
                    at = (side - Odd - k + G::K - 1) / 2;  // which result of a stride, which pixel
          const Weights w = *reinterpret_cast<const Weights *>(taps + (high * G::K + k) * G::Channels);
#pragma unroll
          for (int t = 0; t < G::TW; ++t) {
            accum[i][t * 2 + side][0] = fmaf(line.v[t + at][0], w.v[0], accum[i][t * 2 + side][0]);
            accum[i][t * 2 + side][1] = fmaf(line.v[t + at][1], w.v[1], accum[i][t * 2 + side][1]);
          }
        }
      }
    }
  }
  // A row of pixels counts for all rows of results it is a tap of.
  TW_GPU void plane(const char *from, int row, const float *of) {
#pragma unroll
    for (int r = 0; r < G::high; ++r) {
      const TileLine<Config, G::reach> line(from + r * row);
#pragma unroll
      for (int i = 0; i < G::TH; ++i) {
        const int high = (r - i * G::S) / G::D;
        if (r < i * G::S || high * G::D != r - i * G::S || high >= G::K) continue;
#pragma unroll
        for (int k = 0; k < G::K; ++k) {
          const Weights w = *reinterpret_cast<const Weights *>(of + (high * G::K + k) * G::Channels);
#pragma unroll
          for (int t = 0; t < G::TW; ++t) {
            accum[i][t][0] = fmaf(line.v[t * G::S + k * G::D][0], w.v[0], accum[i][t][0]);
            accum[i][t][1] = fmaf(line.v[t * G::S + k * G::D][1], w.v[1], accum[i][t][1]);
          }
        }
      }
    }
  }
  TW_GPU void store_tile(const TilePlace<G> &at, int strip, int line) {
    if constexpr (Finish<Config>::fused)
      if (!alike) return each<true>(at, strip, line);  // in one place, out of the others' way: it is long
    finish();
    each<false>(at, strip, line);
  }

 private:
  template <bool General> TW_GPU void each(const TilePlace<G> &at, int strip, int line) {
#pragma unroll
    for (int i = 0; i < G::TH * G::Up; ++i) {
      const int h = (at.h + line) * G::Up + i, first = (at.w + strip * G::TW) * G::Up;
      if (h >= x.out[1]) break;
      C *to = static_cast<C *>(x.to) + at.image * x.to_apart[3] + at.d * x.to_apart[2] + h * x.to_apart[1] +
              first * x.to_apart[0] + channel;
      const long long pixel = (((long long)at.image * x.out[2] + at.d) * x.out[1] + h) * x.out[0] + first;
#pragma unroll
      for (int t = 0; t < G::TW * G::Up; ++t) {
        if (first + t >= x.out[0]) break;
        store<General>(to + t * x.to_apart[0], accum[i][t], pixel + t);
      }
    }
  }
  TW_GPU void finish() {
    if (!Finish<Config>::fused) return;
#pragma unroll
    for (int i = 0; i < G::TH * G::Up; ++i)
#pragma unroll
      for (int t = 0; t < G::TW * G::Up; ++t)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float v = accum[i][t][c];
#pragma unroll
          for (int d = 0; d < Config::num_d && !begins; ++d) v = Finish<Config>::combine(v, to_float(same[d][c]));
          accum[i][t][c] = rounded_up ? v : activate<Config::epilogue>(v);
        }
  }
  template <bool General> TW_GPU void store(C *to, const float (&v)[2], long long pixel) const {
    if constexpr (General) *reinterpret_cast<Some<C, 2> *>(to) = Finish<Config>(x.finish).some(v, 2, 0, pixel, channel);
    else if constexpr (rounded_up) *reinterpret_cast<uint32_t *>(to) = pair_at_least_0(C{}, v[0], v[1]);
    else if constexpr (sizeof(C) == 2) *reinterpret_cast<uint32_t *>(to) = pair(C{}, v[0], v[1]);
    else {
      Some<C, 2> two;
      round_to(v[0], two.v[0]), round_to(v[1], two.v[1]);
      *reinterpret_cast<Some<C, 2> *>(to) = two;
    }
  }
};

// The weights of a block's channels as floats, [tap][channel]; so many loads are under way at once.
template <class Config> TW_GPU void keep_tile_taps(const DepthwiseTileArgs &x, float *to, int first, int here) {
  using G = DepthwiseTile<Config>;
  using T = typename Config::A;
  constexpr int batch = 4;
  const T *from = static_cast<const T *>(x.with) + first * x.filter_apart;
  for (int at = threadIdx.x; at < x.taps * G::Channels; at += batch * G::working) {
    T values[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int one = at + i * G::working, c = min(one % G::Channels, here - 1),
                tap = min(one / G::Channels, x.taps - 1);
      values[i] = from[c * x.filter_apart + tap * x.tap_apart];
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int one = at + i * G::working, tap = one / G::Channels;
      if (tap < x.taps)
        to[(x.flipped ? x.taps - 1 - tap : tap) * G::Channels + one % G::Channels] = to_float(values[i]);
    }
  }
}

template <class Config>
TW_GPU void tile_pixels(const DepthwiseTileArgs &x, const TileMemory<Config> &shared, int block, int part) {
  using G = DepthwiseTile<Config>;
  const int first = block * G::Channels, here = min(G::Channels, x.channels - first);
  TileUnits<Config> units(x);
  const int mine = units.lane % G::Lanes * 2;
  const bool inside = mine < here;
  TilePixels<Config> pixels(x, shared.taps + mine, first + mine, inside);
  keep_tile_taps<Config>(x, shared.taps, first, here);
  named_barrier(1, G::working);
  TileRing ring;
  for (int tile = part; tile < x.tiles; tile += x.parts, ring.next(x.stages)) {
    const TilePlace<G> at(x, tile);
    uint32_t planes = 0;
    for (int k = 0; k < x.planes; ++k) {
      const int plane = at.d * x.step - x.before[2] + k * x.apart;
      planes |= uint32_t(plane >= 0 && plane < x.depth) << k;
    }
    shared.full[ring.stage].wait(ring.phase);
    const char *stage = shared.stages + ring.stage * shared.stage_bytes + mine * 2;
    units.each([&](int strip, int line, bool there) {
      pixels.unit(stage + (line * G::S * x.row + strip * G::TW * G::S) * G::pixel, planes);
      if (there && inside) pixels.store_tile(at, strip, line);
    });
    __syncwarp();
    if (units.lane == 0) shared.empty[ring.stage].arrive();
  }
}

// backward_weight: a unit's products of x and y are added to the accumulators of a plane of taps.
template <class Config> TW_GPU void add_unit(const char *from, int row, const char *of_y, int row_of_y,
                                             float (&accum)[DepthwiseTile<Config>::K][DepthwiseTile<Config>::K][2]) {
  using G = DepthwiseTile<Config>;
  float y[G::TH][G::TW][2];
#pragma unroll
  for (int i = 0; i < G::TH; ++i) {
    const TileLine<Config, G::TW> read(of_y + i * row_of_y);
#pragma unroll
    for (int t = 0; t < G::TW; ++t) y[i][t][0] = read.v[t][0], y[i][t][1] = read.v[t][1];
  }
#pragma unroll
  for (int r = 0; r < G::high; ++r) {
    const TileLine<Config, G::reach> read(from + r * row);
#pragma unroll
    for (int i = 0; i < G::TH; ++i) {
      const int high = (r - i * G::S) / G::D;
      if (r < i * G::S || high * G::D != r - i * G::S || high >= G::K) continue;
#pragma unroll
      for (int t = 0; t < G::TW; ++t)
#pragma unroll
        for (int k = 0; k < G::K; ++k) {
          accum[high][k][0] = fmaf(read.v[t * G::S + k * G::D][0], y[i][t][0], accum[high][k][0]);
          accum[high][k][1] = fmaf(read.v[t * G::S + k * G::D][1], y[i][t][1], accum[high][k][1]);
        }
    }
  }
}

// The accumulators of all threads of a channel are added through shared memory, and leave as one of the splits.
template <class Config>
TW_GPU void reduce_weights(const DepthwiseTileArgs &x, const TileMemory<Config> &shared, const TileUnits<Config> &units,
                           const float (&accum)[DepthwiseTile<Config>::K][DepthwiseTile<Config>::K][2], int block,
                           int part, int plane) {
  using G = DepthwiseTile<Config>;
  float *staging = reinterpret_cast<float *>(shared.stages);
  const int slot = units.warp * G::each + units.lane / G::Lanes, first = block * G::Channels;
  const int mine = units.lane % G::Lanes * 2;
#pragma unroll
  for (int h = 0; h < G::K; ++h)
#pragma unroll
    for (int k = 0; k < G::K; ++k)
      *reinterpret_cast<Some<float, 2> *>(&staging[((h * G::K + k) * G::slots + slot) * G::Channels + mine]) = {
          {accum[h][k][0], accum[h][k][1]}};
  named_barrier(1, G::working);
  for (int at = threadIdx.x; at < G::K * G::K * G::Channels; at += G::working) {
    const int tap = at / G::Channels, c = at % G::Channels;
    if (first + c >= x.channels) continue;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < G::slots; ++i) sum += staging[(tap * G::slots + i) * G::Channels + c];
    x.partial[((long long)part * x.taps + plane * G::K * G::K + tap) * x.channels + first + c] = sum;
  }
}

// backward_weight: one plane of taps, over the tiles of one split.
template <class Config>
TW_GPU void tile_weights(const DepthwiseTileArgs &x, const TileMemory<Config> &shared, int block, int part, int plane) {
  using G = DepthwiseTile<Config>;
  float accum[G::K][G::K][2] = {};
  TileUnits<Config> units(x);
  const int mine = units.lane % G::Lanes * 2, row = x.row * G::pixel, row_of_y = x.row_of_y * G::pixel;
  TileRing ring;
  for (int tile = part; tile < x.tiles; tile += x.parts, ring.next(x.stages)) {
    const TilePlace<G> at(x, tile);
    const int d = at.d * x.step - x.before[2] + plane * x.apart;
    shared.full[ring.stage].wait(ring.phase);
    const char *stage = shared.stages + ring.stage * shared.stage_bytes + mine * 2;
    if (d >= 0 && d < x.depth)
      units.each([&](int strip, int line, bool there) {
        if (!there) return;
        const char *from = stage + (line * G::S * x.row + strip * G::TW * G::S) * G::pixel;
        const char *of_y = stage + shared.x_bytes + line * row_of_y + strip * G::TW * G::pixel;
        add_unit<Config>(from, row, of_y, row_of_y, accum);
      });
    __syncwarp();
    if (units.lane == 0) shared.empty[ring.stage].arrive();
  }
  named_barrier(1, G::working);  // nobody reads tiles any more
  reduce_weights<Config>(x, shared, units, accum, block, part, plane);
}

template <class Config>
TW_GPU void conv_depthwise_tile(const TensorMap &map_x, const TensorMap &map_y, const DepthwiseTileArgs &x) {
  using G = DepthwiseTile<Config>;
  const TileMemory<Config> shared(x);
  const int all = blockIdx.x / x.blocks, block = blockIdx.x - all * x.blocks;
  const int lines = G::weight ? x.planes : 1, part = all / lines, line = all - part * lines;
  if (threadIdx.x == G::working) {
    let_next_kernel_in();  // that adds splits, or copies results
    tma_prefetch(&map_x);
    if (G::weight) tma_prefetch(&map_y);
    for (int i = 0; i < x.stages; ++i) shared.full[i].init(1), shared.empty[i].init(G::warps);
    fence_barriers();
  }
  __syncthreads();
  wait_for_kernel_before();  // that copies operands
  if (threadIdx.x >= G::working) {
    if (threadIdx.x == G::working) produce_tiles<Config>(map_x, map_y, x, shared, block, part, line);
  } else if constexpr (G::weight) tile_weights<Config>(x, shared, block, part, line);
  else tile_pixels<Config>(x, shared, block, part);
}

}  // namespace tw

#define TW_DEVICE_CONV_DEPTHWISE_TILE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::DepthwiseTile<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::DepthwiseTileArgs x) { \
    tw::conv_depthwise_tile<Config>(a, b, x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::adding_threads) \
      Symbol##_add(const __grid_constant__ tw::DepthwiseTileArgs x) { \
    if constexpr (tw::DepthwiseTile<Config>::weight) tw::add_depthwise_splits<Config>(x); \
  }
#else
#define TW_DEVICE_CONV_DEPTHWISE_TILE(Config, Symbol)
#endif
