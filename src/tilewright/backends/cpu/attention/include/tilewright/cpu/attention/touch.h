// What scores meet besides their scale, where lanes are queries: soft cap, bias, mask, ALiBi, and the window.
#pragma once
#include <tilewright/cpu/attention/softmax.h>
#include <tilewright/cpu/attention/view.h>

namespace tw {

// Out of line: transposing a square is many instructions, and who comes here is not in a hurry.
__attribute__((noinline)) inline void turn_square(vu (&square)[lanes]) { transpose(square); }

// The queries in the lanes of a tile.
template <int Width> struct TileRows {
  int64_t count, width;              // queries there are, and lanes in use
  int32_t row[Width], head[Width];   // of a lane; lanes without a query repeat the last
  int32_t from[Width], to[Width];    // the keys it sees
  int32_t latest_from, earliest_to;  // which all of them see
  int64_t first, end;                // which any of them sees

  __attribute__((noinline)) void fill(const tw_attention_args &x, const Sequence &s, const Packed &all, int64_t kv_head,
                                      int64_t r0, int64_t n) {
    count = n, width = up(n, lanes);
    latest_from = 0, earliest_to = int32_t(s.keys), first = s.keys, end = 0;
    int64_t i = all.row(r0), of = all.head(kv_head, r0);
    for (int64_t t = 0; t < width; ++t) {
      int64_t a = s.from(x, i), b = s.to(x, i);
      row[t] = int32_t(i), head[t] = int32_t(of);
      from[t] = int32_t(a), to[t] = int32_t(b);
      if (a > latest_from) latest_from = int32_t(a);
      if (b < earliest_to) earliest_to = int32_t(b);
      first = least(first, a), end = most(end, b);
      if (t + 1 >= n) continue;
      if (++i == all.rows) i = 0, ++of;
    }
  }
  TW_INLINE bool all_see(int64_t j0, int64_t j1, int64_t sinks) const {
    return j1 <= earliest_to && (j0 >= latest_from || j1 <= sinks);
  }
};

template <class Config> struct Touch {
  using Bias = typename Config::Aux;
  static constexpr int most_width = Config::warp_tile_m;
  using Tile = TileRows<most_width>;

  // Scores of keys j0 to j0 + keys, and their maxima afresh: top = max(before, scores).
  static __attribute__((noinline)) void touch(const tw_attention_args &x, const Sequence &s, const Tile &t, int64_t j0,
                                              int64_t keys, float *scores, const float *before, float *top) {
    if constexpr (Config::softcap) cap(x, t, keys, scores);
    if constexpr (Config::bias == AttentionBias::tensor) squares<true>(x, s, t, j0, keys, scores);
    if constexpr (Config::masked) squares<false>(x, s, t, j0, keys, scores);
    bound(x, s, t, j0, keys, scores, before, top);
  }

 private:
  static void cap(const tw_attention_args &x, const Tile &t, int64_t keys, float *scores) {
    if (!(x.softcap > 0)) return;
    vf inside = splat(float(1 / x.softcap)), outside = splat(float(x.softcap));
    for (int64_t at = 0; at < keys * t.width; at += lanes)
      store_f(scores + at, outside * vtanh(load_f(scores + at) * inside));
  }

  // A bias or a mask: squares of queries by keys, transposed.
  template <bool Added> static void squares(const tw_attention_args &x, const Sequence &s, const Tile &t, int64_t j0,
                                            int64_t keys, float *scores) {
    const auto &strides = Added ? x.bias_strides : x.mask_strides;
    for (int64_t v = 0; v < t.width; v += lanes)
      for (int64_t j = 0; j < keys; j += lanes) {
        int64_t some = least(lanes, keys - j);
        vu square[lanes];
#pragma GCC unroll 1
        for (int64_t l = 0; l < lanes; ++l) {
          int64_t at = at_strides(strides, s, t.head[v + l], t.row[v + l], j0 + j);
          if constexpr (Added) square[l] = vu(biases(static_cast<const Bias *>(x.bias) + at, strides[3], some));
          else square[l] = mask_bytes(static_cast<const uint8_t *>(x.mask) + at, strides[3], some);
        }
        turn_square(square);
        for (int64_t l = 0; l < some; ++l) {
          float *to = scores + (j + l) * t.width + v;
          if constexpr (Added) store_f(to, load_f(to) + vf(square[l]));
          else store_f(to, select(vi(square[l] == 0u), splat(minus_infinity), load_f(to)));
        }
      }
  }
  // ALiBi and the window.
  static void bound(const tw_attention_args &x, const Sequence &s, const Tile &t, int64_t j0, int64_t keys,
                    float *scores, const float *before, float *top) {
    constexpr bool slopes = Config::bias == AttentionBias::alibi;
    bool edge = !t.all_see(j0, j0 + keys, x.sink_keys);
    for (int64_t v = 0; v < t.width; v += lanes) {
      [[maybe_unused]] vf slope{}, place{};
      vf highest = load_f(before + v);
      if constexpr (slopes)
#pragma GCC unroll 1
        for (int l = 0; l < lanes; ++l) {
          slope[l] = slope_of(x, s, t.head[v + l]);
          place[l] = float(t.row[v + l] + s.beside);
        }
      vi from = vi(load_u(t.from + v)), to = vi(load_u(t.to + v));
      for (int64_t j = 0; j < keys; ++j) {
        float *at = scores + j * t.width + v;
        vf score = load_f(at);
        if constexpr (slopes) score -= slope * vabs(place - float(j0 + j));
        if (edge) {
          vi key = splat(int32_t(j0 + j)), low = j0 + j < x.sink_keys ? vi{} : from;
          score = select(vi(key >= low) & vi(key < to), score, splat(minus_infinity));
        }
        store_f(at, score);
        highest = larger(score, highest);
      }
      store_f(top + v, highest);
    }
  }
};

}  // namespace tw
