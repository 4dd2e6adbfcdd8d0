// Attention by the mma pipeline: warps that fetch, multiply and weigh, on any GPU with mma.sync and cp.async.
#pragma once
#include <tilewright/cuda/attention/mma/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention/mma/producer.h>
#include <tilewright/cuda/attention/mma/epilogue_store.h>
#include <tilewright/cuda/attention/mma/consumer.h>
#include <tilewright/cuda/attention/scores.h>

namespace tw {

template <class S, class Config> struct MmaAttender {
  using Warp = AttentionMmaWarp<S>;
  const AttentionMmaArgs &x;
  const AttentionItem &item;
  const MmaShared<S> shared;
  const MmaWarp<S> me;
  Softmax softmax[S::R];
  WarpResults<S> o;

  TW_GPU MmaAttender(const AttentionMmaArgs &args, const AttentionItem &of) : x(args), item(of) {
#pragma unroll
    for (int r = 0; r < S::R; ++r)
#pragma unroll
      for (int i = 0; i < S::warp_columns / 2; ++i) o[r][i] = 0;
  }

  TW_GPU void run() {
    const KeyTiles tiles = tiles_of<S>(x.ws, item);
    if (tiles.count > 0) traversal(tiles);
    MmaEpilogueStore<S, Config>{x, item, shared, me}.store_tile(softmax, o);
  }

 private:
  // Tiles of keys, and of values where these are not the same, in turn through the slots.
  struct Traversal {
    const MmaProducer<S> producer;
    const KeyTiles &tiles;
    int units, unit = 0, slot = 0, next_slot = 0;
  };
  TW_GPU bool shares() const { return S::may_share && x.values_in_keys; }

  // The unit behind those in flight, of keys or of values; Odd: 1 where it is known to be values, 0 where keys.
  template <int Odd> TW_GPU void ask(Traversal &w, int unit) const {
    if (unit < w.units) {
      char *to = shared.slot(w.next_slot);
      const bool sharing = shares(), values = !sharing && (Odd < 0 ? unit % 2 == 1 : Odd == 1);
      const int key = w.tiles.template at<S>(sharing ? unit : unit / 2) * S::BN;
      if (values) w.producer.values(to, key);
      else w.producer.keys(to, key);
    }
    commit_copies();
    w.next_slot = w.next_slot + 1 == S::Slots ? 0 : w.next_slot + 1;
  }
  // The next unit is there, for all; the slot of the one before it is free and filled anew.
  template <int Odd> TW_GPU const char *arrive(Traversal &w) const {
    wait_copies<S::Slots - 2>();
    block_barrier();
    ask<(Odd + S::Slots - 1) % 2>(w, w.unit + S::Slots - 1);
    const char *at = shared.slot(w.slot);
    ++w.unit;
    w.slot = w.slot + 1 == S::Slots ? 0 : w.slot + 1;
    return at;
  }

  TW_GPU void traversal(const KeyTiles &tiles) {
    const int head = S::Packed ? item.head : x.ws.by_group.quotient(item.head);
    Traversal w{{x, item, head}, tiles, tiles.count * (shares() ? 1 : 2)};
#pragma unroll 1
    for (int unit = 0; unit < S::Slots - 1; ++unit) ask<-1>(w, unit);
    if constexpr (S::scales_rows) carry_scaled_queries<S>(x, item, shared.q(), shared.factors());
    else carry_queries<S>(x, item, shared.q());
    const Dropout dropout = Config::dropout ? dropout_of(x.ws.x) : Dropout{};
    const Span whole = wholly_seen();
#pragma unroll 1
    for (int i = 0; i < tiles.count; ++i) {
      const int key = tiles.template at<S>(i) * S::BN;
      const char *at = arrive<0>(w);
      WarpScores<S> s;
      multiply_keys<S>(s, shared.q() + me.row() * S::q_pitch, at + me.along * S::warp_keys * S::k_pitch);
      judge(s, key + me.along * S::warp_keys, whole, dropout);
      if constexpr (S::WN > 1) store_weights(s);
      if (!shares()) at = arrive<1>(w);
      else if (S::WN > 1) block_barrier();
      add_values(s, at, shares() ? S::k_pitch : S::v_pitch);
    }
  }

  // Keys that every row of the warp sees.
  TW_GPU Span wholly_seen() const {
    const int first = item.tile * S::BM + me.row(), shift = shift_of(x.ws, item);
    int begin = 0, end = item.keys;
    if constexpr (S::Bounded) {
      if (x.ws.right < unbounded_window) end = min(end, position_of<S>(x.ws, first) + shift + x.ws.right + 1);
      if (x.ws.left < unbounded_window)
        begin = max(0, position_of<S>(x.ws, first + S::warp_rows - 1) + shift - x.ws.left);
    }
    return {begin, end};
  }

  // Scores as they come from the multiplication become weights, and results so far fit them.
  TW_GPU void judge(WarpScores<S> &s, int key, const Span &whole, const Dropout &dropout) {
    float top[S::R][2];
    const bool seen = key >= whole.begin && key + S::warp_keys <= whole.end;
#pragma unroll
    for (int r = 0; r < S::R; ++r) {
      if constexpr (Config::scales != AttentionScales::none || S::scales_rows) scale_scores(s[r], r, key);
      if constexpr (S::scored) add_to_scores<Warp, Config>(s[r], x.ws, item, me.rows(x.ws, item, r), key);
      else if (x.ws.flip) negate<Warp>(s[r]);
      if (!seen) hide<Warp>(s[r], x.ws, item, me.rows(x.ws, item, r), key);
      highest(s[r], top[r]);
    }
    if constexpr (S::WN > 1) sync(top);
#pragma unroll
    for (int r = 0; r < S::R; ++r) {
      weigh_below(s[r], r, top[r]);
      if constexpr (Config::dropout) drop<Warp>(s[r], x.ws, item, me.rows(x.ws, item, r), dropout, key);
      if constexpr (Config::scales == AttentionScales::block) scale_weights(s[r], key);
    }
  }
  TW_GPU static void highest(const float (&s)[S::warp_keys / 2], float (&top)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float tops[2] = {s[h * 2], s[h * 2 + 1]};
#pragma unroll
      for (int i = 2; i < S::warp_keys / 4; ++i) tops[i % 2] = fmaxf(tops[i % 2], s[i / 2 * 4 + h * 2 + i % 2]);
      float most = fmaxf(tops[0], tops[1]);
      most = fmaxf(most, lane_xor(most, 1));
      top[h] = fmaxf(most, lane_xor(most, 2));
    }
  }
  // The largest of all warps that share the rows.
  TW_GPU void sync(float (&top)[S::R][2]) const {
#pragma unroll
    for (int i = 0; i < S::R * 2; ++i)
      if (me.lane % 4 == 0) store_shared(shared.met(me.along, me.row() + me.lane / 4 + i * 8), top[i / 2][i % 2]);
    block_barrier();
#pragma unroll
    for (int i = 0; i < S::R * 2; ++i)
#pragma unroll
      for (int w = 0; w < S::WN; ++w)
        top[i / 2][i % 2] = fmaxf(top[i / 2][i % 2], load_shared<float>(shared.met(w, me.row() + me.lane / 4 + i * 8)));
  }
  TW_GPU void weigh_below(float (&s)[S::warp_keys / 2], int r, const float (&highest)[2]) {
    const float fold = x.ws.fold;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float top = fmaxf(softmax[r].top[h], highest[h]), base = top == no_score() ? 0.0f : top * fold;
      const float factor = exp2_fast(softmax[r].top[h] * fold - base);
      softmax[r].top[h] = top;
      float accum[2] = {softmax[r].sum[h] * factor, 0};
#pragma unroll
      for (int i = 0; i < S::warp_keys / 4; ++i) {
        float &one = s[i / 2 * 4 + h * 2 + i % 2];
        one = exp2_fast(one * fold - base);
        accum[i % 2] += one;
      }
      softmax[r].sum[h] = accum[0] + accum[1];
#pragma unroll
      for (int j = 0; j < S::warp_columns / 4; ++j) o[r][j / 2 * 4 + h * 2 + j % 2] *= factor;
    }
  }

  // The factors of fp8: those of a row and of a key.
  TW_GPU void scale_scores(float (&s)[S::warp_keys / 2], int r, int key) const {
    const tw_attention_args &a = x.ws.x;
    const ThreadRows rows = me.rows(x.ws, item, r);
    const int head = S::Packed ? item.head : x.ws.by_group.quotient(item.head);
    float of_row[2], of_keys = 1;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      of_row[h] = rows.there[h] ? scale_at(a.q_scales, item.sequence, rows.head[h], rows.position[h]) : 1.0f;
      if (S::scales_rows) of_row[h] *= load_shared<float>(shared.factors() + me.row() + r * 16 + me.lane / 4 + h * 8);
    }
    if (Config::scales != AttentionScales::block) of_keys = scale_at(a.k_scales, item.sequence, head, 0);
#pragma unroll
    for (int i = 0; i < S::warp_keys / 4; ++i) {
      const int at = key + i / 2 * 8 + me.lane % 4 * 2 + i % 2;
      if (Config::scales == AttentionScales::block)
        of_keys = at < item.keys ? scale_at(a.k_scales, item.sequence, head, at) : 1.0f;
      s[i / 2 * 4 + i % 2] *= of_row[0] * of_keys;
      s[i / 2 * 4 + 2 + i % 2] *= of_row[1] * of_keys;
    }
  }
  TW_GPU void scale_weights(float (&s)[S::warp_keys / 2], int key) const {
    const int head = S::Packed ? item.head : x.ws.by_group.quotient(item.head);
#pragma unroll
    for (int i = 0; i < S::warp_keys / 4; ++i) {
      const int at = key + i / 2 * 8 + me.lane % 4 * 2 + i % 2;
      const float of_key = at < item.keys ? scale_at(x.ws.x.v_scales, item.sequence, head, at) : 1.0f;
      s[i / 2 * 4 + i % 2] *= of_key;
      s[i / 2 * 4 + 2 + i % 2] *= of_key;
    }
  }

  TW_GPU void store_weights(const WarpScores<S> &s) const {
#pragma unroll
    for (int i = 0; i < S::R * 2; ++i)
#pragma unroll
      for (int j = 0; j < S::warp_keys / 8; ++j)
        store_shared(shared.p() + (me.row() + me.lane / 4 + i * 8) * S::p_pitch +
                         (me.along * S::warp_keys + j * 8 + me.lane % 4 * 2) * 2,
                     pair(typename S::T{}, s[i / 2][j * 4 + i % 2 * 2], s[i / 2][j * 4 + i % 2 * 2 + 1]));
  }
  TW_GPU void weights(uint32_t (&p)[S::R][4], const WarpScores<S> &s, int step) const {
#pragma unroll
    for (int r = 0; r < S::R; ++r) {
      if constexpr (S::WN > 1) {
        load_matrices(p[r],
                      shared.p() + (me.row() + r * 16 + me.lane % 16) * S::p_pitch + step * 32 + me.lane / 16 * 16);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) p[r][j] = pair(typename S::T{}, s[r][step * 8 + j * 2], s[r][step * 8 + j * 2 + 1]);
      }
    }
  }
  TW_GPU void add_values(const WarpScores<S> &s, const char *at, int pitch) {
    const int column = me.along * S::warp_columns;
    if constexpr (S::narrow && !S::transposed) {
#pragma unroll
      for (int step = 0; step < S::BN / 32; ++step) {
        uint32_t p[2][S::R][4];
        weights(p[0], s, step * 2);
        weights(p[1], s, step * 2 + 1);
        multiply_narrow_values<S>(o, p, at + step * 32 * pitch + column, pitch);
      }
    } else {
#pragma unroll
      for (int step = 0; step < S::BN / 16; ++step) {
        uint32_t p[S::R][4];
        weights(p, s, step);
        const char *from =
            S::transposed ? at + column * pitch + step * 16 * S::size : at + step * 16 * pitch + column * 2;
        multiply_values<S>(o, p, from, pitch);
      }
    }
  }
};

template <class S, class Config> TW_GPU void attention_mma(const AttentionMmaArgs &x) {
  AttentionOrder<S> order(x.ws);
  AttentionItem item;
  while (order.next(item)) {
    MmaAttender<S, Config>(x, item).run();
    block_barrier();  // nobody's rows are overwritten
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_MMA(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionMma<Config>::threads, \
                                               tw::AttentionMma<Config>::ctas_per_sm) \
      Symbol(const __grid_constant__ tw::AttentionMmaArgs x) { \
    tw::attention_mma<tw::AttentionMma<Config>, Config>(x); \
  }
#else
#define TW_DEVICE_ATTENTION_MMA(Config, Symbol)
#endif
