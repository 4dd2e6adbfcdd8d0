// The device's half of depthwise convolutions.
#pragma once
#include <tilewright/cuda/conv/depthwise/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/depthwise/roll.h>

namespace tw {

// The weights of a block's channels as floats, [tap][channel].
template <class Config> TW_GPU void keep_taps(const DepthwiseArgs &x, float *to, int channel, int here, int row) {
  using T = typename Config::A;
  const T *from = static_cast<const T *>(x.with) + channel * x.filter_apart;
  constexpr int batch = 8, threads = Depthwise<Config>::threads;  // so many loads are under way
  for (int first = threadIdx.x; first < here * x.taps; first += batch * threads) {
    T values[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int at = min(first + i * threads, here * x.taps - 1), c = x.by_taps.quotient(at);
      values[i] = from[c * x.filter_apart + (at - c * x.taps) * x.tap_apart];
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int at = first + i * threads, c = x.by_taps.quotient(at), tap = at - c * x.taps;
      if (at < here * x.taps) to[(x.flipped ? x.taps - 1 - tap : tap) * row + c] = to_float(values[i]);
    }
  }
}

template <class Config> TW_GPU void depthwise_pixels(const DepthwiseArgs &x) {
  using G = Depthwise<Config>;
  const int part = blockIdx.x / x.blocks, block = blockIdx.x - part * x.blocks;
  const int row = x.vecs * G::V, first = block * row, slots = G::threads / x.vecs;
  float *taps = reinterpret_cast<float *>(dynamic_shared());
  keep_taps<Config>(x, taps, first, min(row, x.channels - first), row);
  __syncthreads();
  const int slot = x.by_vecs.quotient(threadIdx.x), vec = threadIdx.x - slot * x.vecs, channel = first + vec * G::V;
  if (slot >= slots || channel >= x.channels) return;
  const DepthwisePixels<Config> pixels{x, taps + vec * G::V, row, channel};
  for (long long at = (long long)part * slots + slot; at < x.work; at += (long long)x.parts * slots) {
    if constexpr (G::TH > 0) roll_pixels(pixels, Strip<G>(x, at));
    else pixels.strip(Strip<G>(x, at));
  }
}

// Blocks are blocks of channels, then rows of taps (rolled: planes of them), then splits of the strips.
template <bool Rolled, class Config> struct depthwise_accum {
  using type = DepthwiseWeights<Config>;
};
template <class Config> struct depthwise_accum<true, Config> {
  using type = RollWeights<Config>;
};
template <class Config> TW_GPU void depthwise_weights(const DepthwiseArgs &x) {
  using G = Depthwise<Config>;
  using Weights = typename depthwise_accum<(G::TH > 0), Config>::type;
  constexpr int high = Weights::high;  // rows of taps of a thread
  const int lines = x.window[1] / high * x.window[2];
  const int all = blockIdx.x / x.blocks, block = blockIdx.x - all * x.blocks, part = all / lines;
  const int number = (all - part * lines) * high;
  const int row = x.vecs * G::V, slots = G::threads / x.vecs;
  const int slot = x.by_vecs.quotient(threadIdx.x), vec = threadIdx.x - slot * x.vecs,
            channel = block * row + vec * G::V;
  const bool here = slot < slots && channel < x.channels;
  Weights weights{x, number / x.window[1], number % x.window[1], channel};
  let_next_kernel_in();
  if (here) weights.all((long long)part * slots + slot, (long long)x.parts * slots);
  // The slots of a block are added in order.
  float *staging = reinterpret_cast<float *>(dynamic_shared());
#pragma unroll
  for (int h = 0; h < high; ++h) {
    if (h > 0) __syncthreads();
#pragma unroll
    for (int k = 0; k < G::KW; ++k)
#pragma unroll
      for (int i = 0; i < G::V; ++i)
        if (here) staging[(k * slots + slot) * row + vec * G::V + i] = weights.accum[h][k][i];
    __syncthreads();
    for (int at = threadIdx.x; at < G::KW * row; at += G::threads) {
      const int k = at / row, c = at - k * row;
      if (block * row + c >= x.channels) continue;
      float sum = 0;
      for (int i = 0; i < slots; ++i) sum += staging[(k * slots + i) * row + c];
      x.partial[((long long)part * x.taps + (number + h) * G::KW + k) * x.channels + block * row + c] = sum;
    }
  }
}

// And the splits too.
template <class Config> TW_GPU void depthwise_add(const DepthwiseArgs &x) {
  const int at = blockIdx.x * Depthwise<Config>::threads + threadIdx.x;
  if (at >= x.taps * x.channels) return;
  const int tap = at / x.channels, channel = at - tap * x.channels;
  float sum = 0;
  wait_for_kernel_before();
#pragma unroll 8
  for (int part = 0; part < x.parts; ++part) sum += x.partial[(long long)part * x.taps * x.channels + at];
  round_to(sum, static_cast<typename Config::C *>(x.to)[channel * x.filter_apart + tap * x.tap_apart]);
}

template <class Config> TW_GPU void conv_depthwise(const DepthwiseArgs &x) {
  wait_for_kernel_before();  // that copies operands
  if constexpr (Depthwise<Config>::weight) depthwise_weights<Config>(x);
  else depthwise_pixels<Config>(x);
}

}  // namespace tw

#define TW_DEVICE_CONV_DEPTHWISE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Depthwise<Config>::threads, tw::Depthwise<Config>::ctas_per_sm) \
      Symbol(const __grid_constant__ tw::DepthwiseArgs x) { \
    tw::conv_depthwise<Config>(x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::Depthwise<Config>::threads) \
      Symbol##_add(const __grid_constant__ tw::DepthwiseArgs x) { \
    if constexpr (tw::Depthwise<Config>::weight) tw::depthwise_add<Config>(x); \
  }
#else
#define TW_DEVICE_CONV_DEPTHWISE(Config, Symbol)
#endif
