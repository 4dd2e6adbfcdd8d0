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

// A vector of four channels, as the words it comes in: taken apart early, each element would have a register of its own.
template <class T> struct Pixel {
  static constexpr int words = sizeof(T);
  uint32_t word[words];

  // Zeros, where it is not there.
  TW_GPU void load(const T *from, bool there) {
#pragma unroll
    for (int i = 0; i < words; ++i) word[i] = 0;
    if (!there) return;
    if constexpr (words == 2) {
      const uint2 v = *reinterpret_cast<const uint2 *>(from);
      word[0] = v.x, word[1] = v.y;
    } else {
      const uint4 v = *reinterpret_cast<const uint4 *>(from);
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    }
  }
  TW_GPU void widen(float (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = one(i, T{});
  }

 private:
  TW_GPU float one(int i, float) const { return __uint_as_float(word[i % words]); }
  TW_GPU float one(int i, bf16) const {
    return __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
  }
  TW_GPU float one(int i, fp16) const { return to_float(fp16{uint16_t(i % 2 ? word[i / 2] >> 16 : word[i / 2])}); }
};

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

// Neighbouring pixels of a row, on their way from memory while others are multiplied.
template <class T, int Count> struct Row {
  Pixel<T> pixels[Count];

  // Those whose bit is set; zeros for the others.
  TW_GPU void load(const T *from, int apart, uint32_t there) {
#pragma unroll
    for (int j = 0; j < Count; ++j, from += apart) pixels[j].load(from, there >> j & 1);
  }
};
// Of the pixels from `first` on, which ones lie in a row of `size`.
template <int Count> TW_GPU uint32_t inside_row(int first, int size) {
  const uint32_t all = Count < 32 ? (1u << Count) - 1 : ~0u;
  const uint32_t low = first >= 0 ? all : -first >= Count ? 0u : all << -first;
  const int left = size - first;
  return left >= Count ? low : left <= 0 ? 0u : low & ((1u << left) - 1);
}

// forward, backward_data.
template <class Config> struct DepthwisePixels {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  using C = typename Config::C;
  using Line = Row<T, G::reach>;
  struct alignas(16) Four {
    float v[4];
  };
  const DepthwiseArgs &x;
  const float *taps;  // of this thread's channels, in shared memory: [tap][channels of the block]
  int row;            // of that
  long long channel;

  // One row of the window over a strip.
  TW_GPU void slide(float (&sums)[G::TW][G::V], const Line &line, const float *of) const {
    Four weights[G::KW > 0 ? G::KW : 1];
#pragma unroll
    for (int k = 0; k < G::KW; ++k) weights[k] = *reinterpret_cast<const Four *>(of + k * row);
#pragma unroll
    for (int j = 0; j < G::reach; ++j) {
      float v[G::V];
      line.pixels[j].widen(v);
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        const int k = j - t * G::SW;
        if (k < 0 || k >= G::KW) continue;
#pragma unroll
        for (int i = 0; i < G::V; ++i) sums[t][i] = fmaf(v[i], weights[k].v[i], sums[t][i]);
      }
    }
  }
  // The same of any width, stride and dilation, a tap at a time.
  TW_GPU void gather(float (&sums)[G::TW][G::V], const T *from, int w, const float *of) const {
#pragma unroll 1
    for (int k = 0; k < x.window[0]; ++k) {
      const Four weights = *reinterpret_cast<const Four *>(of + k * row);
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        int at;
        Pixel<T> pixel;
        const bool there = meets<Config>(x, 0, w + t, k, at);
        pixel.load(from + at * x.from_apart[0], there);
        float v[G::V];
        pixel.widen(v);
#pragma unroll
        for (int i = 0; i < G::V; ++i) sums[t][i] = fmaf(v[i], weights.v[i], sums[t][i]);
      }
    }
  }

  // Rows of the window that meet one of the image, one after the other.
  struct Rows {
    const DepthwisePixels &p;
    const Strip<G> &s;
    const T *from, *line = nullptr;
    const float *of = nullptr;
    int kd = 0, kh = -1, d = 0;
    bool plane = false;

    TW_GPU bool next() {
      const DepthwiseArgs &x = p.x;
      for (;;) {
        if (++kh == x.window[1]) kh = 0, ++kd;
        if (kd >= x.window[2]) return false;
        if (kh == 0) plane = meets<Config>(x, 2, s.d, kd, d);
        int h;
        if (!plane || !meets<Config>(x, 1, s.h, kh, h)) continue;
        line = from + d * x.from_apart[2] + h * x.from_apart[1];
        of = p.taps + (kd * x.window[1] + kh) * x.window[0] * p.row;
        return true;
      }
    }
  };
  TW_GPU void strip(const Strip<G> &s) const {
    float sums[G::TW][G::V] = {};
    const T *from = static_cast<const T *>(x.from) + s.image * x.from_apart[3] + channel;
    Rows rows{*this, s, from};
    if constexpr (G::KW > 0) {
      const int first = s.w * G::SW - x.before[0], apart = int(x.from_apart[0]);
      const uint32_t there = inside_row<G::reach>(first, x.size[0]);
      rows.from += first * x.from_apart[0];
      Line a, b;
      bool more = rows.next();
      if (more) a.load(rows.line, apart, there);
      while (more) {  // the next row comes while one is multiplied
        const float *of = rows.of;
        more = rows.next();
        if (more) b.load(rows.line, apart, there);
        slide(sums, a, of);
        if (!more) break;
        of = rows.of;
        more = rows.next();
        if (more) a.load(rows.line, apart, there);
        slide(sums, b, of);
      }
    } else {
      while (rows.next()) gather(sums, rows.line, s.w, rows.of);
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

// backward_weight: the sums of one row of taps.
template <class Config> struct DepthwiseWeights {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  // What a strip reads: its pixels of y, and those of x that the row of taps meets.
  struct Read {
    Row<T, G::TW> y;
    Row<T, G::reach> x;
  };
  const DepthwiseArgs &x;
  int plane, line, channel;
  float sums[G::KW][G::V] = {};

  // False: the row of taps meets nothing there.
  TW_GPU bool load(Read &to, const Strip<G> &s) const {
    int d, h;
    if (!meets<Config>(x, 2, s.d, plane, d) || !meets<Config>(x, 1, s.h, line, h)) return false;
    const int first = s.w * G::SW - x.before[0];
    const T *y = static_cast<const T *>(x.with) + s.image * x.to_apart[3] + s.d * x.to_apart[2] + s.h * x.to_apart[1];
    const T *from = static_cast<const T *>(x.from) + s.image * x.from_apart[3] + d * x.from_apart[2] +
                    h * x.from_apart[1] + first * x.from_apart[0];
    to.y.load(y + s.w * x.to_apart[0] + channel, int(x.to_apart[0]), inside_row<G::TW>(s.w, x.out[0]));
    to.x.load(from + channel, int(x.from_apart[0]), inside_row<G::reach>(first, x.size[0]));
    return true;
  }
  TW_GPU void add(const Read &read) {
    float given[G::TW][G::V];
#pragma unroll
    for (int t = 0; t < G::TW; ++t) read.y.pixels[t].widen(given[t]);
#pragma unroll
    for (int j = 0; j < G::reach; ++j) {
      float v[G::V];
      read.x.pixels[j].widen(v);
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        const int k = j - t * G::SW;
        if (k < 0 || k >= G::KW) continue;
#pragma unroll
        for (int i = 0; i < G::V; ++i) sums[k][i] = fmaf(v[i], given[t][i], sums[k][i]);
      }
    }
  }
  // Strips from `at` on, `step` apart; the next one comes while one is multiplied.
  TW_GPU void all(long long at, long long step) {
    Read a, b;
    const auto next = [&](Read &to) {
      for (; at < x.work; at += step)
        if (load(to, Strip<G>(x, at))) {
          at += step;
          return true;
        }
      return false;
    };
    bool more = next(a);
    while (more) {
      more = next(b);
      add(a);
      if (!more) break;
      more = next(a);
      add(b);
    }
  }
};

// Blocks are blocks of channels, then rows of taps, then parts of the strips.
template <class Config> TW_GPU void depthwise_weights(const DepthwiseArgs &x) {
  using G = Depthwise<Config>;
  const int all = blockIdx.x / x.blocks, block = blockIdx.x - all * x.blocks, lines = x.window[1] * x.window[2];
  const int part = all / lines, number = all - part * lines;
  const int row = x.vecs * G::V, slots = G::threads / x.vecs;
  const int slot = x.by_vecs.quotient(threadIdx.x), vec = threadIdx.x - slot * x.vecs,
            channel = block * row + vec * G::V;
  const bool here = slot < slots && channel < x.channels;
  DepthwiseWeights<Config> weights{x, number / x.window[1], number % x.window[1], channel};
  if (here) weights.all((long long)part * slots + slot, (long long)x.parts * slots);
  // The slots of a block are added in order.
  float *sheet = reinterpret_cast<float *>(dynamic_shared());
#pragma unroll
  for (int k = 0; k < G::KW; ++k)
#pragma unroll
    for (int i = 0; i < G::V; ++i)
      if (here) sheet[(k * slots + slot) * row + vec * G::V + i] = weights.sums[k][i];
  __syncthreads();
  for (int at = threadIdx.x; at < G::KW * row; at += G::threads) {
    const int k = at / row, c = at - k * row;
    if (block * row + c >= x.channels) continue;
    float sum = 0;
    for (int i = 0; i < slots; ++i) sum += sheet[(k * slots + i) * row + c];
    x.partial[((long long)part * x.taps + number * G::KW + k) * x.channels + block * row + c] = sum;
  }
}

// And the parts too.
template <class Config> TW_GPU void depthwise_add(const DepthwiseArgs &x) {
  const int at = blockIdx.x * Depthwise<Config>::threads + threadIdx.x;
  if (at >= x.taps * x.channels) return;
  const int tap = at / x.channels, channel = at - tap * x.channels;
  float sum = 0;
#pragma unroll 8
  for (int part = 0; part < x.parts; ++part) sum += x.partial[(long long)part * x.taps * x.channels + at];
  round_to(sum, static_cast<typename Config::C *>(x.to)[channel * x.filter_apart + tap * x.tap_apart]);
}

template <class Config> TW_GPU void conv_depthwise(const DepthwiseArgs &x) {
  if constexpr (Depthwise<Config>::weight) depthwise_weights<Config>(x);
  else depthwise_pixels<Config>(x);
}

}  // namespace tw

#define TW_DEVICE_CONV_DEPTHWISE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Depthwise<Config>::threads, tw::Depthwise<Config>::together) \
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
