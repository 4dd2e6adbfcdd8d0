// Scores of a decode kernel where many rows share a head of keys: lanes are rows, as in attention_micro.h.  A word of a
// key is broadcast to all of them where it lies, and no sum crosses a lane; weights then stand side by side by row, as
// the accumulators of values take them (attention_decode_rows.h).
#pragma once
#include <tilewright/cpu/attention/decode/rows.h>
#include <tilewright/cpu/attention/touch.h>
#include <tilewright/cpu/copies/pack.h>

namespace tw {

// Config: as attention_decode.h says.
template <class Config> struct DecodeLanes {
  using Q = typename Config::Q;
  using K = typename Config::KV;
  using D = tw::Dot<Q, K>;
  static constexpr int step = D::step, vectors_most = 2, keys_most = 8;
  static constexpr int64_t panel = vectors_most * lanes;                                      // rows multiplied at once
  static constexpr int64_t block = (Config::tile_n + keys_most - 1) / keys_most * keys_most;  // keys there is room for

  struct AsTile : Config {
    static constexpr int warp_tile_m = panel;
  };
  using Touching = Touch<AsTile>;

  // Rows of one head, panel after panel: `wide` lanes of the one that begins with row r0.
  static TW_INLINE int64_t wide(const Packed &all, int64_t r0) { return up(least(panel, all.total() - r0), lanes); }

  // ---- what is packed --------------------------------------------------------------------------
  // Copied are keys that are no words, such that end in half of one, and such that lie apart: a word of each of eight is
  // read before the next word of any, and rows far apart share their place in the first-level cache.
  static constexpr int64_t near = 1024;  // bytes
  static TW_INLINE bool copied(const tw_attention_args &x) {
    bool words = step == 2 || same<K, float>::value;
    return !words || x.head_qk % step || x.k_strides.row * int64_t(sizeof(K)) > near;
  }
  static TW_INLINE int64_t copied_words(int64_t size) { return up(size, lanes * step) / step; }
  static __attribute__((noinline)) void copy(const K *const *rows, int64_t shift, int64_t keys, int64_t size,
                                             uint32_t *to) {
    constexpr int64_t whole = lanes * step;
    bool even = size >= whole && size % step == 0;  // the last vector may end with the row
    for (int64_t j = 0; j < keys; ++j, to += copied_words(size)) {
      const K *row = rows[j] + shift;
      int64_t d = 0;
      for (; d + whole <= size; d += whole) store_u(to + d / step, D::along_k(row + d));
      if (d == size) continue;
      if (even) store_u(to + (size - whole) / step, D::along_k(row + size - whole));
      else store_u(to + d / step, words_along<D>(row + d, size - d));
    }
  }
  // A query: lane `lane` of a panel.
  static void pack_query(const tw_attention_args &x, const Q *from, int64_t lane, int64_t lanes_wide, uint32_t *to) {
    for (int64_t d = 0; d < x.head_qk; d += lanes * step) {
      uint32_t part[lanes];
      store_u(part, words_along<D>(from + d, x.head_qk - d));
      const int64_t some = least(lanes, (x.head_qk - d + step - 1) / step);
      for (int64_t l = 0; l < some; ++l) to[(d / step + l) * lanes_wide + lane] = part[l];
    }
  }

  // ---- a block of keys ---------------------------------------------------------------------------
  // Where keys are: pointers and what lies before each, or a copy of words.
  struct Keys {
    const K *const *rows;
    int64_t shift, j0, keys;
    const uint32_t *copy;
    int64_t words;

    TW_INLINE const void *at(int64_t j) const {
      j = least(j, keys - 1);
      return copy ? static_cast<const void *>(copy + j * words) : rows[j] + shift;
    }
  };
  // Of the rows of a panel: what is kept from block to block, scores and the factor of what was summed before.
  struct Panel {
    const uint32_t *q;
    float *top, *sum, *scores, *shrink;
  };

  template <int Vectors> static void scores(const tw_attention_args &x, const Keys &from, const Panel &t, float *top,
                                            Ahead &ahead, int64_t share) {
    constexpr int at_once = vector_bytes == 64 || Vectors == 1 ? keys_most : keys_most / 2;
    for (int64_t j = 0; j < from.keys; j += at_once) {
      const void *rows[at_once];
      for (int64_t l = 0; l < at_once; ++l) rows[l] = from.at(j + l);
      ahead.ask(share * at_once);
      score_block<D, at_once, Vectors>(rows, t.q, (x.head_qk + step - 1) / step, float(x.scale),
                                       t.scores + j * Vectors * lanes, top);
    }
  }

  // Weights of the panel of rows r0 and on.
  static void weights(const tw_attention_args &x, const Sequence &s, const Packed &all, int64_t kv_head, int64_t r0,
                      const Keys &from, const Panel &t, Ahead &ahead, int64_t share) {
    int64_t across = wide(all, r0), j1 = from.j0 + from.keys;
    float top[panel];
    __builtin_memcpy(top, t.top, size_t(across) * 4);
    with_fixed<vectors_most>(across / lanes,
                             [&](auto vectors) { scores<decltype(vectors)::value>(x, from, t, top, ahead, share); });
    bool all_see = j1 <= s.to(x, 0) && (from.j0 >= s.from(x, s.rows - 1) || j1 <= x.sink_keys);
    if (touched<Config> || (bounded<Config> && !all_see)) {
      typename Touching::Tile tile;
      tile.fill(x, s, all, kv_head, r0, least(panel, all.total() - r0));
      Touching::touch(x, s, tile, from.j0, from.keys, t.scores, t.top, top);
    }
    weigh<D>(t.scores, across, from.keys, top, t.top, t.sum, t.shrink);
  }
};

}  // namespace tw
