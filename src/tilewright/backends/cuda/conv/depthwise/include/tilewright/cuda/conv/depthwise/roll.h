// Windows that roll down a column of rows: a row is read once and counts for all rows of results it is a tap of.  Square
// windows that move pixel by pixel.
#pragma once
#include <tilewright/cuda/conv/depthwise/slide.h>

namespace tw {

// A row of pixels as floats.
template <class G, class Line> TW_GPU void widen_row(float (&to)[G::reach][G::V], const Line &line) {
#pragma unroll
  for (int j = 0; j < G::reach; ++j) line.pixels[j].widen(to[j]);
}

// forward, backward_data: the accumulators of KW rows of results are under way, of which the first is done with the row that is
// its last tap.
template <class Config> struct RollPixels {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  using Line = Row<T, G::V, G::reach>;
  using Weights = Some<float, G::V>;
  float accum[G::KW][G::TW][G::V] = {};

  // A row of pixels; `first` is the row of results that is done with it, of those from 0 to `count`.
  TW_GPU void add(const Line &line, const float *taps, int row, int first, int count) {
    float v[G::reach][G::V];
    widen_row<G>(v, line);
#pragma unroll
    for (int s = 0; s < G::KW; ++s) {
      if (first + s < 0 || first + s >= count) continue;
      const float *of = taps + (G::KW - 1 - s) * G::KW * row;
      Weights weights[G::KW];
#pragma unroll
      for (int k = 0; k < G::KW; ++k) weights[k] = *reinterpret_cast<const Weights *>(of + k * row);
#pragma unroll
      for (int k = 0; k < G::KW; ++k)
#pragma unroll
        for (int t = 0; t < G::TW; ++t)
#pragma unroll
          for (int i = 0; i < G::V; ++i) accum[s][t][i] = fmaf(v[t + k][i], weights[k].v[i], accum[s][t][i]);
    }
  }
  TW_GPU void roll() {
#pragma unroll
    for (int s = 0; s < G::KW; ++s)
#pragma unroll
      for (int t = 0; t < G::TW; ++t)
#pragma unroll
        for (int i = 0; i < G::V; ++i) accum[s][t][i] = s + 1 < G::KW ? accum[s + 1 < G::KW ? s + 1 : s][t][i] : 0.0f;
  }
};

template <class Config> TW_GPU void roll_pixels(const DepthwisePixels<Config> &p, const Strip<Depthwise<Config>> &s) {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  const DepthwiseArgs &x = p.x;
  const int first = s.w - x.before[0], count = min(G::TH, x.out[1] - s.h), top = s.h - x.before[1];
  const int low = max(0, -top), high = min(count + G::KW - 1, x.size[1] - top);  // rows that there are
  const uint32_t there = inside_row<G::reach>(first, x.size[0]);
  const int apart = int(x.from_apart[0]);
  const T *from = static_cast<const T *>(x.from) + s.image * x.from_apart[3] + p.channel + first * x.from_apart[0] +
                  top * x.from_apart[1];
  RollPixels<Config> window;
  typename RollPixels<Config>::Line line, next;
  const auto fetch = [&](typename RollPixels<Config>::Line &to, int t, int kd) {
    int d = 0;
    const bool inside = t >= low && t < high && meets<Config>(x, 2, s.d, kd, d);
    to.load(from + d * x.from_apart[2] + t * x.from_apart[1], apart, inside ? there : 0u);
  };
  fetch(next, 0, 0);
#pragma unroll 1
  for (int t = 0; t < count + G::KW - 1; ++t) {
#pragma unroll 1
    for (int kd = 0; kd < x.window[2]; ++kd) {  // the next row comes while one is multiplied
      line = next;
      const bool last = kd + 1 == x.window[2];
      if (t + 1 < count + G::KW - 1 || !last) fetch(next, last ? t + 1 : t, last ? 0 : kd + 1);
      if (t >= low && t < high) window.add(line, p.taps + kd * G::KW * G::KW * p.row, p.row, t - (G::KW - 1), count);
    }
    if (t >= G::KW - 1) p.store_tile(window.accum[0], s, s.h + t - (G::KW - 1));
    window.roll();
  }
}

// backward_weight: a row of x meets the last KW rows of y, which are kept.
template <class Config> struct RollWeights {
  using G = Depthwise<Config>;
  using T = typename Config::A;
  static constexpr int high = G::KW;
  using Above = Row<T, G::V, G::reach>;
  using Below = Row<T, G::V, G::TW>;
  const DepthwiseArgs &x;
  int plane, line, channel;
  float accum[high][G::KW][G::V] = {};

  TW_GPU void all(long long at, long long step) {
    for (; at < x.work; at += step) strip(Strip<G>(x, at));
  }

 private:
  TW_GPU void strip(const Strip<G> &s) {
    int d;
    if (!meets<Config>(x, 2, s.d, plane, d)) return;
    const int first = s.w - x.before[0], count = min(G::TH, x.out[1] - s.h), top = s.h - x.before[1];
    const uint32_t inside = inside_row<G::reach>(first, x.size[0]), given = inside_row<G::TW>(s.w, x.out[0]);
    const T *from = static_cast<const T *>(x.from) + s.image * x.from_apart[3] + d * x.from_apart[2] + channel +
                    first * x.from_apart[0] + top * x.from_apart[1];
    const T *y = static_cast<const T *>(x.with) + s.image * x.to_apart[3] + s.d * x.to_apart[2] + channel +
                 s.w * x.to_apart[0] + s.h * x.to_apart[1];
    Below rows[G::KW] = {};  // of y: the newest last
    Above next_above;
    Below next_below;
    const auto fetch = [&](int t) {
      const bool there = top + t >= 0 && top + t < x.size[1];
      next_above.load(from + t * x.from_apart[1], int(x.from_apart[0]), there ? inside : 0u);
      next_below.load(y + t * x.to_apart[1], int(x.to_apart[0]), t < count ? given : 0u);
    };
    fetch(0);
#pragma unroll 1
    for (int t = 0; t < count + G::KW - 1; ++t) {
      float v[G::reach][G::V];
      widen_row<G>(v, next_above);
#pragma unroll
      for (int r = 0; r + 1 < G::KW; ++r) rows[r] = rows[r + 1];
      rows[G::KW - 1] = next_below;
      if (t + 1 < count + G::KW - 1) fetch(t + 1);
      add(v, rows, t, count);
    }
  }
  // The row of x is tap kh of the row of y that lies kh before it.
  TW_GPU void add(const float (&v)[G::reach][G::V], const Below (&rows)[G::KW], int newest, int count) {
#pragma unroll
    for (int kh = 0; kh < G::KW; ++kh) {
      if (newest < kh || newest - kh >= count) continue;
#pragma unroll
      for (int t = 0; t < G::TW; ++t) {
        float y[G::V];
        rows[G::KW - 1 - kh].pixels[t].widen(y);
#pragma unroll
        for (int k = 0; k < G::KW; ++k)
#pragma unroll
          for (int i = 0; i < G::V; ++i) accum[kh][k][i] = fmaf(v[t + k][i], y[i], accum[kh][k][i]);
      }
    }
  }
};

}  // namespace tw
