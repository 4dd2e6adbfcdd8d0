// Depthwise convolutions a row of taps at a time: any height, stride and dilation of the window.
#pragma once
#include <tilewright/cuda/conv/depthwise/rows.h>

namespace tw {

// forward, backward_data.
template <class Config> struct DepthwisePixels {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  using C = typename Config::C;
  using Line = Row<T, G::V, G::reach>;
  using Weights = Some<float, G::V>;
  const DepthwiseArgs &x;
  const float *taps;  // of this thread's channels, in shared memory: [tap][channels of the block]
  int row;            // of that
  long long channel;

  // One row of the window over a strip.
  TW_GPU void slide(float (&accum)[G::TW][G::V], const Line &line, const float *of) const {
    Weights weights[G::KW > 0 ? G::KW : 1];
#pragma unroll
    for (int k = 0; k < G::KW; ++k) weights[k] = *reinterpret_cast<const Weights *>(of + k * row);
#pragma unroll
    for (int j = 0; j < G::reach; ++j) {
      float v[G::V];
      line.pixels[j].widen(v);
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        const int k = j - t * G::SW;
        if (k < 0 || k >= G::KW) continue;
#pragma unroll
        for (int i = 0; i < G::V; ++i) accum[t][i] = fmaf(v[i], weights[k].v[i], accum[t][i]);
      }
    }
  }
  // The same of any width, stride and dilation, a tap at a time; the pixels of several are under way together.
  TW_GPU void gather(float (&accum)[G::TW][G::V], const T *from, int w, const float *of) const {
    constexpr int batch = 4;
#pragma unroll 1
    for (int first = 0; first < x.window[0]; first += batch) {
      Pixel<T, G::V> pixels[batch][G::TW];
#pragma unroll
      for (int k = 0; k < batch; ++k)
#pragma unroll
        for (int t = 0; t < G::TW; ++t) {
          int at;
          const bool there = meets<Config>(x, 0, w + t, first + k, at) && first + k < x.window[0];
          pixels[k][t].load(from + at * x.from_apart[0], there);
        }
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const Weights weights = *reinterpret_cast<const Weights *>(of + min(first + k, x.window[0] - 1) * row);
#pragma unroll
        for (int t = 0; t < G::TW; ++t) {
          float v[G::V];
          pixels[k][t].widen(v);
#pragma unroll
          for (int i = 0; i < G::V; ++i) accum[t][i] = fmaf(v[i], weights.v[i], accum[t][i]);
        }
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
    float accum[G::TW][G::V] = {};
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
        slide(accum, a, of);
        if (!more) break;
        of = rows.of;
        more = rows.next();
        if (more) a.load(rows.line, apart, there);
        slide(accum, b, of);
      }
    } else {
      while (rows.next()) gather(accum, rows.line, s.w, rows.of);
    }
    store_tile(accum, s, s.h);
  }
  // The results of a strip of row h.
  TW_GPU void store_tile(const float (&accum)[G::TW][G::V], const Strip<G> &s, int h) const {
    const Finish<Config> finish(x.finish);
    C *to = static_cast<C *>(x.to) + s.image * x.to_apart[3] + s.d * x.to_apart[2] + h * x.to_apart[1] + channel;
    const long long pixel = (((long long)s.image * x.out[2] + s.d) * x.out[1] + h) * x.out[0] + s.w;
#pragma unroll
    for (int t = 0; t < G::TW; ++t)
      if (s.w + t < x.out[0]) finish.store(accum[t], G::V, 0, pixel + t, channel, to + (s.w + t) * x.to_apart[0]);
  }
};

// backward_weight: the accumulators of one row of taps.
template <class Config> struct DepthwiseWeights {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  // What a strip reads: its pixels of y, and those of x that the row of taps meets.
  struct Read {
    Row<T, G::V, G::TW> y;
    Row<T, G::V, G::reach> x;
  };
  static constexpr int high = 1;
  const DepthwiseArgs &x;
  int plane, line, channel;
  float accum[high][G::KW][G::V] = {};

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
        for (int i = 0; i < G::V; ++i) accum[0][k][i] = fmaf(v[i], given[t][i], accum[0][k][i]);
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

}  // namespace tw
