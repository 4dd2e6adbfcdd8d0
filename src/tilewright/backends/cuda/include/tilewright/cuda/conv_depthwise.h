// The device's half of depthwise convolutions.
#pragma once
#include <tilewright/cuda/conv_depthwise_shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/device.h>

namespace tw {

// What a thread works on: its vector of channels, and where its strip lies.
template <class G> struct Strip {
  int w, h, d, image;  // of the strip's first pixel
  TW_GPU Strip(const DepthwiseArgs &x, long long number) {
    const int all = int(number), row = x.strips.quotient(all), plane = x.rows.quotient(row);
    image = x.planes.quotient(plane);
    w = (all - row * int(x.strips.by)) * G::TW;
    h = row - plane * int(x.rows.by);
    d = plane - image * int(x.planes.by);
  }
};

template <class T, int V> TW_GPU void widen_some(float (&to)[V], const T *from, bool there) {
  Some<T, V> some;
  if (there) some = *reinterpret_cast<const Some<T, V> *>(from);
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = there ? to_float(some.v[i]) : 0.0f;
}

// Whether a tap of a row meets one, and which: backward_data with strides meets every so many only.
template <class Config> TW_GPU bool meets(const DepthwiseArgs &x, int axis, int pixel, int tap, int &at) {
  if constexpr (Config::variant == ConvVariant::backward_data && Config::window == 0) {
    const int steps = pixel + x.before[axis] - tap * x.dilation[axis];
    at = steps / x.stride[axis];
    return steps >= 0 && at * x.stride[axis] == steps && at < x.size[axis];
  } else {
    at = pixel * x.stride[axis] - x.before[axis] + tap * x.dilation[axis];
    return at >= 0 && at < x.size[axis];
  }
}

// forward, backward_data.
template <class Config> struct DepthwisePixels {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  using C = typename Config::C;
  const DepthwiseArgs &x;
  const float *taps;  // of this thread's channels, in shared memory: [tap][channels of the block]
  int row;            // of that
  long long channel;

  // One row of the window over a strip.
  TW_GPU void slide(float (&sums)[G::TW][G::V], const T *from, int w, const float *of) const {
    float weights[G::KW > 0 ? G::KW : 1][G::V];
#pragma unroll
    for (int k = 0; k < G::KW; ++k)
#pragma unroll
      for (int i = 0; i < G::V; ++i) weights[k][i] = of[k * row + i];
    const int first = w * G::SW - x.before[0];
#pragma unroll
    for (int j = 0; j < G::reach; ++j) {
      float v[G::V];
      widen_some<T>(v, from + (first + j) * x.from_apart[0], first + j >= 0 && first + j < x.size[0]);
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        const int k = j - t * G::SW;
        if (k < 0 || k >= G::KW) continue;
#pragma unroll
        for (int i = 0; i < G::V; ++i) sums[t][i] = fmaf(v[i], weights[k][i], sums[t][i]);
      }
    }
  }
  // The same of any width, stride and dilation, a tap at a time.
  TW_GPU void gather(float (&sums)[G::TW][G::V], const T *from, int w, const float *of) const {
#pragma unroll 1
    for (int k = 0; k < x.window[0]; ++k) {
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        int at;
        const bool there = meets<Config>(x, 0, w + t, k, at);
        float v[G::V];
        widen_some<T>(v, from + at * x.from_apart[0], there);
#pragma unroll
        for (int i = 0; i < G::V; ++i) sums[t][i] = fmaf(v[i], of[k * row + i], sums[t][i]);
      }
    }
  }
  TW_GPU void strip(const Strip<G> &s) const {
    float sums[G::TW][G::V] = {};
    const T *from = static_cast<const T *>(x.from) + s.image * x.from_apart[3] + channel;
#pragma unroll 1
    for (int kd = 0; kd < x.window[2]; ++kd) {
      int d;
      if (!meets<Config>(x, 2, s.d, kd, d)) continue;
#pragma unroll 1
      for (int kh = 0; kh < x.window[1]; ++kh) {
        int h;
        if (!meets<Config>(x, 1, s.h, kh, h)) continue;
        const T *line = from + d * x.from_apart[2] + h * x.from_apart[1];
        const float *of = taps + (kd * x.window[1] + kh) * x.window[0] * row;
        if constexpr (G::KW > 0) slide(sums, line, s.w, of);
        else gather(sums, line, s.w, of);
      }
    }
    const Finish<Config> finish(x.finish);
    C *to = static_cast<C *>(x.to) + s.image * x.to_apart[3] + s.d * x.to_apart[2] + s.h * x.to_apart[1] + channel;
    const long long pixel = (((long long)s.image * x.out[2] + s.d) * x.out[1] + s.h) * x.out[0] + s.w;
#pragma unroll
    for (int t = 0; t < G::TW; ++t)
      if (s.w + t < x.out[0]) finish.store(sums[t], G::V, 0, pixel + t, channel, to + (s.w + t) * x.to_apart[0]);
  }
};

// The weights of a block's channels as floats, [tap][channel].
template <class Config> TW_GPU void keep_taps(const DepthwiseArgs &x, float *to, int channel, int here, int row) {
  using T = typename Config::A;
  const T *from = static_cast<const T *>(x.with) + channel * x.filter_apart;
  for (int at = threadIdx.x; at < here * x.taps; at += Depthwise<Config>::threads) {
    const int c = at / x.taps, tap = at - c * x.taps;
    to[(x.flipped ? x.taps - 1 - tap : tap) * row + c] = to_float(from[c * x.filter_apart + tap * x.tap_apart]);
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
  for (long long at = (long long)part * slots + slot; at < x.work; at += (long long)x.parts * slots)
    pixels.strip(Strip<G>(x, at));
}

// backward_weight: the sums of all taps of one plane of the window.
template <class Config> struct DepthwiseWeights {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  const DepthwiseArgs &x;
  float sums[G::KW][G::KW][G::V];

  TW_GPU void strip(const Strip<G> &s, int plane, int channel) {
    int d;
    if (!meets<Config>(x, 2, s.d, plane, d)) return;
    const T *y = static_cast<const T *>(x.with) + s.image * x.to_apart[3] + s.d * x.to_apart[2] + s.h * x.to_apart[1];
    float given[G::TW][G::V];
#pragma unroll
    for (int t = 0; t < G::TW; ++t)
      widen_some<T>(given[t], y + (s.w + t) * x.to_apart[0] + channel, s.w + t < x.out[0]);
    const T *from = static_cast<const T *>(x.from) + s.image * x.from_apart[3] + d * x.from_apart[2] + channel;
    const int first = s.w * G::SW - x.before[0];
#pragma unroll
    for (int kh = 0; kh < G::KW; ++kh) {
      int h;
      if (!meets<Config>(x, 1, s.h, kh, h)) continue;
      const T *line = from + h * x.from_apart[1];
#pragma unroll
      for (int j = 0; j < G::reach; ++j) {
        float v[G::V];
        widen_some<T>(v, line + (first + j) * x.from_apart[0], first + j >= 0 && first + j < x.size[0]);
#pragma unroll
        for (int t = 0; t < G::TW; ++t) {
          const int k = j - t * G::SW;
          if (k < 0 || k >= G::KW) continue;
#pragma unroll
          for (int i = 0; i < G::V; ++i) sums[kh][k][i] = fmaf(v[i], given[t][i], sums[kh][k][i]);
        }
      }
    }
  }
};

// Blocks are blocks of channels, then planes of the window, then parts of the strips.
template <class Config> TW_GPU void depthwise_weights(const DepthwiseArgs &x) {
  using G = Depthwise<Config>;
  const int all = blockIdx.x / x.blocks, block = blockIdx.x - all * x.blocks;
  const int part = all / x.window[2], plane = all - part * x.window[2];
  const int row = x.vecs * G::V, slots = G::threads / x.vecs;
  const int slot = x.by_vecs.quotient(threadIdx.x), vec = threadIdx.x - slot * x.vecs,
            channel = block * row + vec * G::V;
  const bool here = slot < slots && channel < x.channels;
  DepthwiseWeights<Config> weights{x, {}};
  if (here)
    for (long long at = (long long)part * slots + slot; at < x.work; at += (long long)x.parts * slots)
      weights.strip(Strip<G>(x, at), plane, channel);
  // The slots of a block are added in order.
  float *sheet = reinterpret_cast<float *>(dynamic_shared());
#pragma unroll
  for (int kh = 0; kh < G::KW; ++kh) {
#pragma unroll
    for (int k = 0; k < G::KW; ++k)
#pragma unroll
      for (int i = 0; i < G::V; ++i)
        if (here) sheet[(k * slots + slot) * row + vec * G::V + i] = weights.sums[kh][k][i];
    __syncthreads();
    for (int at = threadIdx.x; at < G::KW * row; at += G::threads) {
      const int k = at / row, c = at - k * row;
      if (block * row + c >= x.channels) continue;
      float sum = 0;
      for (int i = 0; i < slots; ++i) sum += sheet[(k * slots + i) * row + c];
      x.partial[((long long)part * x.taps + (plane * G::KW + kh) * G::KW + k) * x.channels + block * row + c] = sum;
    }
    __syncthreads();
  }
}

// And the parts too.
template <class Config> TW_GPU void depthwise_add(const DepthwiseArgs &x) {
  const int at = blockIdx.x * Depthwise<Config>::threads + threadIdx.x;
  if (at >= x.taps * x.channels) return;
  const int tap = at / x.channels, channel = at - tap * x.channels;
  float sum = 0;
  for (int part = 0; part < x.parts; ++part) sum += x.partial[(long long)part * x.taps * x.channels + at];
  round_to(sum, static_cast<typename Config::C *>(x.to)[channel * x.filter_apart + tap * x.tap_apart]);
}

template <class Config> TW_GPU void conv_depthwise(const DepthwiseArgs &x) {
  if constexpr (Depthwise<Config>::weight) depthwise_weights<Config>(x);
  else depthwise_pixels<Config>(x);
}

}  // namespace tw

#define TW_DEVICE_CONV_DEPTHWISE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Depthwise<Config>::threads) \
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
