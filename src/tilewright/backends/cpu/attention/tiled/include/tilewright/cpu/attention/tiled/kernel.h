// The tiled pipeline: queries in lanes (attention_micro.h), keys block by block, the softmax online.
//
// An item is a set of tiles of one head of keys: what is packed of keys and values serves all of its tiles, and so all
// query heads of the group.  Keys and values of fp32 that lie close are read where they are; others are copied, widened
// where the ISA has no product for them, in chunks that stay in the second-level cache.
#pragma once
#include <tilewright/cpu/attention/careful.h>
#include <tilewright/cpu/attention/micro.h>
#include <tilewright/cpu/attention/plan.h>
#include <tilewright/cpu/attention/touch.h>
#include <tilewright/cpu/copies/pack.h>

namespace tw {

// Config: as attention_rules.h says, and tile_m (queries of a set), tile_n (keys of a block), warp_tile_m (queries of
// a tile, whole vectors), warp_tile_n (keys, or elements of a result, at once).
template <class Config> struct AttentionTiled {
  using Q = typename Config::Q;
  using K = typename Config::KV;
  using O = typename Config::O;
  using D = tw::Dot<Q, K>;
  using Touching = Touch<Config>;
  using Rows_ = typename Touching::Tile;
  static constexpr int step = D::step;
  static constexpr int64_t width = Config::warp_tile_m, deep = Config::warp_tile_n, block = Config::tile_n;
  static constexpr int64_t set_most = Config::tile_m / width;
  static constexpr int64_t chunk_words = 96 << 10;  // packed keys and values at a time
  static constexpr int64_t near = 1024;             // bytes between rows that are read where they lie
  static constexpr int64_t shortest_part = 512;
  static_assert(width % lanes == 0 && block % deep == 0 && block % 2 == 0 && Config::tile_m % width == 0,
                "tiles do not divide");
  static_assert(plain_enough<Config>, "left to the loops");

  // ---- sizes -------------------------------------------------------------------------------
  struct Sizes {
    int64_t groups, depth, k_row, v_row;  // words: of a query, elements of a result, of packed rows
    bool pack_k, pack_v;
    int64_t chunk, set;
    int64_t tile_words, slot_words, part_words;

    TW_INLINE explicit Sizes(const tw_attention_args &x) {
      groups = (x.head_qk + step - 1) / step, depth = up(x.head_v, deep);
      k_row = up(groups, lanes), v_row = up(depth, lanes) + lanes;
      // Rows in a copy lie so that they share no cache sets; one tile alone does not pay for it.
      int64_t tiles = (x.heads_q / x.heads_kv) * ((x.rows + width - 1) / width), bytes = sizeof(K);
      bool copy = tiles > 1 || x.pages.table, plain = same<K, float>::value;
      pack_k = copy || !(plain || (step == 2 && x.head_qk % 2 == 0)) || x.k_strides.row * bytes > near;
      pack_v = copy || !plain || x.head_v % deep || x.v_strides.row * bytes > near;
      int64_t packs = (pack_k ? k_row : 0) + (pack_v ? v_row / step : 0);
      chunk = up(most(1, x.keys), block);
      if (packs) chunk = least(chunk, most(block, chunk_words / packs / block * block));
      set = packs ? least(set_most, most(1, tiles)) : 1;
      tile_words = up((groups + depth + 2) * width + int64_t(sizeof(Rows_)) / 4 + 1, 16);
      slot_words = up((block + 2) * width + chunk * packs + set * tile_words, 16);
      part_words = (depth + 2) * width;
    }
  };
  static TW_INLINE int64_t tiles_most(const tw_attention_args &x) {
    return (x.heads_q / x.heads_kv) * ((x.rows + width - 1) / width);
  }
  static TW_INLINE Parts parts(const tw_attention_args &x) {
    return Parts(x.batch * x.heads_kv * tiles_most(x), x.keys, shortest_part);
  }
  static TW_INLINE int64_t parts_words(const tw_attention_args &x, const Sizes &z, const Parts &p) {
    return p.count > 1 ? up(x.batch * x.heads_kv * tiles_most(x) * p.count * z.part_words, 16) : 0;
  }
  static int64_t workspace(const tw_attention_args &x, int64_t threads) {
    Sizes z(x);
    return (parts_words(x, z, parts(x)) + threads * z.slot_words) * 4 + 64;
  }

  // ---- a tile between two chunks of keys -------------------------------------------------------
  struct Tile {
    Rows_ *rows;
    uint32_t *q;                // panel of words
    float *out, *before, *sum;  // elements by queries; maximum and sum of a query
  };
  static TW_INLINE Tile tile_at(const Sizes &z, uint32_t *words) {
    auto *floats = reinterpret_cast<float *>(words);
    float *sum = floats + (z.groups + z.depth + 1) * width;
    return {reinterpret_cast<Rows_ *>(sum + width), words, floats + z.groups * width,
            floats + (z.groups + z.depth) * width, sum};
  }

  static __attribute__((noinline)) void begin(const tw_attention_args &x, const Sequence &s, const Sizes &z,
                                              const Tile &t, int64_t part) {
    const Rows_ &rows = *t.rows;
    __builtin_memset(t.out, 0, size_t(z.depth * rows.width) * 4);
    for (int64_t l = 0; l < rows.width; ++l) {
      const bool sink = Config::sink && part == 0;
      t.before[l] = sink ? static_cast<const float *>(x.sink)[rows.head[l]] : minus_infinity;
      t.sum[l] = !sink ? 0.0f : t.before[l] == t.before[l] ? 1.0f : t.before[l];
    }
    for (int64_t v = 0; v < rows.width; v += lanes) {
      const Q *line[lanes];
      for (int l = 0; l < lanes; ++l) {
        line[l] = q_row<Q>(x, s, rows.head[v + l], rows.row[v + l]);
        for (int64_t d = 0; d < x.head_qk; d += 64 / sizeof(Q)) __builtin_prefetch(line[l] + d);
      }
      for (int64_t g = 0; g < z.groups; g += lanes) {
        vu square[lanes];
        for (int l = 0; l < lanes; ++l) square[l] = words_along<D>(line[l] + g * step, x.head_qk - g * step);
        transpose(square);
        for (int64_t l = 0; l < lanes && g + l < z.groups; ++l) store_u(t.q + (g + l) * rows.width + v, square[l]);
      }
    }
  }

  // Results of a tile, divided by their row sums, transposed back.
  static __attribute__((noinline)) void finish(const tw_attention_args &x, const Sequence &s, const Sizes &z,
                                               const Tile &t) {
    const Rows_ &rows = *t.rows;
    for (int64_t v = 0; v < rows.width; v += lanes) {
      vf sum = load_f(t.sum + v), share = select(vi(sum == 0.0f), vf{}, 1.0f / sum), doubt{};
      int64_t live = least(lanes, rows.count - v);
      O *to[lanes];
      for (int64_t l = 0; l < lanes; ++l) {
        to[l] = o_row<O>(x, s, rows.head[v + l], rows.row[v + l]);
        for (int64_t d = 0; d < x.head_v; d += 64 / sizeof(O)) __builtin_prefetch(to[l] + d, 1);
      }
      for (int64_t d = 0; d < x.head_v; d += lanes) {
        vu square[lanes];
        for (int64_t l = 0; l < lanes; ++l) {
          vf found = d + l < z.depth ? load_f(t.out + (d + l) * rows.width + v) * share : vf{};
          square[l] = vu(found);
          doubt += found - found;  // a NaN anywhere stays
        }
        transpose(square);
        if (d + lanes <= x.head_v)
          for (int64_t l = 0; l < live; ++l) store_from_float(to[l] + d, vf(square[l]));
        else
          for (int64_t l = 0; l < live; ++l) store_from_float(to[l] + d, vf(square[l]), x.head_v - d);
      }
      vi wrong = vi(doubt != doubt) & vi(sum == sum);
      for (int64_t l = 0; l < live; ++l) {
        int64_t head = rows.head[v + l], i = rows.row[v + l];
        if (wrong[l])
          Careful<Config>::row(x, s, head / (x.heads_q / x.heads_kv), head, i, t.before[v + l], t.sum[v + l], to[l]);
        if constexpr (Config::lse) *lse_at(x, s, head, i) = lse_of(t.before[v + l], t.sum[v + l]);
      }
    }
  }

  // ---- keys and values ---------------------------------------------------------------------------
  // Where key j of a chunk that begins at `start` is.
  struct Source {
    int64_t start;
    const char *k;
    const uint32_t *v;
    int64_t k_bytes, v_words;  // from key to key; from group of values to group
  };
  static __attribute__((noinline)) void pack_keys(const Sizes &z, const Rows<K> &from, int64_t head, int64_t j0,
                                                  int64_t j1, uint32_t *to) {
    for (; j0 < j1; ++j0, to += z.k_row) {
      const K *row = from.at(j0);
      for (int64_t g = 0; g < z.groups; g += lanes) store_u(to + g, words_along<D>(row + g * step, head - g * step));
    }
  }
  static __attribute__((noinline)) void pack_values(const Sizes &z, const Rows<K> &from, int64_t head, int64_t j0,
                                                    int64_t j1, uint32_t *to) {
    for (; j0 < j1; j0 += step, to += z.v_row) {
      const K *row = from.at(j0);
      if constexpr (step == 1) {
        for (int64_t d = 0; d < z.depth; d += lanes)
          store_f(to + d, d < head ? load_as_float(row + d, head - d) : vf{});
      } else {
        int64_t there = least(step, j1 - j0), next = there > 1 ? from.at(j0 + 1) - row : 0;
        for (int64_t d = 0; d < z.depth; d += lanes)
          store_u(to + d, d < head ? words_across<D>(row + d, next, head - d, there) : vu{});
      }
    }
  }

  // Keys j0 to j1 for one tile.
  template <int Vectors> static void blocks(const tw_attention_args &x, const Sequence &s, const Sizes &z,
                                            const Tile &t, const Source &from, int64_t j0, int64_t j1, float *scratch) {
    constexpr int64_t wide = Vectors * lanes;
    float *top = scratch, *shrink = scratch + width, *scores = scratch + 2 * width;
    auto *weights = reinterpret_cast<uint32_t *>(scores);
    constexpr bool special = touched<Config>;
    for (int64_t j = j0; j < j1; j += block) {
      int64_t keys = least(block, j1 - j);
      __builtin_memcpy(top, t.before, wide * 4);
      for (int64_t i = 0; i < keys; i += deep) {
        const void *rows[deep];
        for (int64_t l = 0; l < deep; ++l) rows[l] = from.k + (j + least(i + l, keys - 1) - from.start) * from.k_bytes;
        score_block<D, deep, Vectors>(rows, t.q, z.groups, float(x.scale), scores + i * wide, top);
      }
      if (special || (bounded<Config> && !t.rows->all_see(j, j + keys, x.sink_keys)))
        Touching::touch(x, s, *t.rows, j, keys, scores, t.before, top);
      weigh<D>(scores, wide, keys, top, t.before, t.sum, shrink);
      const uint32_t *v = from.v + (j - from.start) / step * from.v_words;
      for (int64_t d = 0; d < z.depth; d += deep)
        value_block<D, deep, Vectors>(v + d, from.v_words, weights, (keys + step - 1) / step, shrink, t.out + d * wide);
    }
  }

  // ---- an item -----------------------------------------------------------------------------------
  // The keys of [low, high) that a tile sees in one of its segments.
  static TW_INLINE bool seen(const tw_attention_args &x, const Rows_ &rows, int segment, int64_t low, int64_t high,
                             int64_t &j0, int64_t &j1) {
    Segments keys(x.sink_keys, rows.first, rows.end);
    j0 = most(low, keys.from[segment]), j1 = least(high, keys.to[segment]);
    return j0 < j1;
  }

  struct Slot {
    float *scratch;
    uint32_t *k, *v, *tiles;
    TW_INLINE Slot(const Sizes &z, uint32_t *words) {
      scratch = reinterpret_cast<float *>(words);
      k = words + (block + 2) * width;
      v = k + (z.pack_k ? z.chunk * z.k_row : 0);
      tiles = v + (z.pack_v ? z.chunk / step * z.v_row : 0);
    }
  };

  static TW_INLINE Source source(const Sizes &z, const Rows<K> &k, const Rows<K> &v, int64_t start, const Slot &slot) {
    Source from{start, nullptr, nullptr, z.k_row * 4, z.v_row};
    from.k = reinterpret_cast<const char *>(z.pack_k ? static_cast<const void *>(slot.k) : k.at(start));
    if (!z.pack_k) from.k_bytes = k.row * int64_t(sizeof(K));
    from.v = z.pack_v ? slot.v : reinterpret_cast<const uint32_t *>(v.at(start));
    if (!z.pack_v) from.v_words = v.row;
    return from;
  }

  // One chunk of keys for all tiles of a set.
  static void chunk(const tw_attention_args &x, const Sequence &s, const Sizes &z, const Slot &slot, int64_t kv_head,
                    int64_t tiles, int64_t start, int64_t low, int64_t high) {
    int64_t j0, j1, first = high, end = low;
    for (int64_t n = 0; n < tiles; ++n)
      for (int segment = 0; segment < 2; ++segment)
        if (seen(x, *tile_at(z, slot.tiles + n * z.tile_words).rows, segment, low, high, j0, j1))
          first = least(first, j0), end = most(end, j1);
    if (first >= end) return;
    Rows<K> k(x, s, x.k, x.k_strides, kv_head), v(x, s, x.v, x.v_strides, kv_head);
    first -= (first - start) % 2;
    if (z.pack_k) pack_keys(z, k, x.head_qk, first, end, slot.k + (first - start) * z.k_row);
    if (z.pack_v) pack_values(z, v, x.head_v, first, end, slot.v + (first - start) / step * z.v_row);
    Source from = source(z, k, v, start, slot);
    for (int64_t n = 0; n < tiles; ++n) {
      Tile t = tile_at(z, slot.tiles + n * z.tile_words);
      for (int segment = 0; segment < 2; ++segment)
        if (seen(x, *t.rows, segment, low, high, j0, j1))
          with_fixed<int(width / lanes)>(t.rows->width / lanes, [&](auto vectors) {
            blocks<decltype(vectors)::value>(x, s, z, t, from, j0, j1, slot.scratch);
          });
    }
  }

  static void run(const tw_attention_args &x, const Sizes &z, const Parts &p, int64_t set, const Item &item,
                  uint32_t *words, float *partial) {
    Sequence s(x, item.sequence);
    Packed all(x, s);
    Tiling tiling(x, all, width);
    Slot slot(z, words);
    int64_t low = p.count > 1 ? item.part * p.span : 0, high = p.count > 1 ? least(s.keys, low + p.span) : s.keys;
    if (item.part > 0 && low >= high) return;
    int64_t tile0 = item.set * set, tiles = least(set, tiling.tiles - tile0);
    for (int64_t n = 0; n < tiles; ++n) {
      Tile t = tile_at(z, slot.tiles + n * z.tile_words);
      t.rows->fill(x, s, all, item.head, tiling.first(all, tile0 + n), tiling.count(all, tile0 + n));
      begin(x, s, z, t, item.part);
    }
    for (int64_t start = low / z.chunk * z.chunk; start < high; start += z.chunk)
      chunk(x, s, z, slot, item.head, tiles, start, most(low, start), least(high, start + z.chunk));
    for (int64_t n = 0; n < tiles; ++n) {
      Tile t = tile_at(z, slot.tiles + n * z.tile_words);
      if (p.count == 1) finish(x, s, z, t);
      else {
        int64_t place = (item.sequence * x.heads_kv + item.head) * tiles_most(x) + tile0 + n;
        float *to = partial + (place * p.count + item.part) * z.part_words;
        __builtin_memcpy(to, t.before, size_t(t.rows->width) * 4);
        __builtin_memcpy(to + width, t.sum, size_t(t.rows->width) * 4);
        __builtin_memcpy(to + 2 * width, t.out, size_t(z.depth * t.rows->width) * 4);
      }
    }
  }

  // The splits of a tile combined.
  static void combine(const tw_attention_args &x, const Sizes &z, const Parts &p, const Item &item, uint32_t *words,
                      const float *partial) {
    Sequence s(x, item.sequence);
    Packed all(x, s);
    Tiling tiling(x, all, width);
    Slot slot(z, words);
    Tile t = tile_at(z, slot.tiles);
    t.rows->fill(x, s, all, item.head, tiling.first(all, item.set), tiling.count(all, item.set));
    int64_t wide = t.rows->width, used = most(1, least(p.count, (s.keys + p.span - 1) / p.span));
    int64_t place = (item.sequence * x.heads_kv + item.head) * tiles_most(x) + item.set;
    const float *first = partial + place * p.count * z.part_words;
    __builtin_memset(t.out, 0, size_t(z.depth * wide) * 4);
    for (int64_t v = 0; v < wide; v += lanes) {
      vf top = splat(minus_infinity), sum{};
      for (int64_t n = 0; n < used; ++n) top = larger(load_f(first + n * z.part_words + v), top);
      for (int64_t n = 0; n < used; ++n) {
        const float *from = first + n * z.part_words;
        vf weight = vexp_weight<true>(load_f(from + v) - subtracted(top));
        sum += weight * load_f(from + width + v);
        for (int64_t d = 0; d < z.depth; ++d) {
          float *to = t.out + d * wide + v;
          store_f(to, load_f(to) + weight * load_f(from + 2 * width + d * wide + v));
        }
      }
      store_f(t.before + v, top);
      store_f(t.sum + v, sum);
    }
    finish(x, s, z, t);
  }

  static int launch(const tw_attention_args &x, void *workspace, void *stream) {
    Sizes z(x);
    Parts p = parts(x);
    auto *partial = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    auto *slots = reinterpret_cast<uint32_t *>(partial) + parts_words(x, z, p);
    int64_t threads = useful_threads(x, team_size(stream)), total = 0;
    auto tiles_of = [&](int64_t b) {
      Sequence s(x, b);
      return s.rows > 0 ? Tiling(x, Packed(x, s), width).tiles : int64_t(0);
    };
    for (int64_t b = 0; b < x.batch; ++b) total += tiles_of(b) * x.heads_kv;
    int64_t set = most(1, least(z.set, total / (threads * 4)));
    auto sets_of = [&](int64_t b) { return (tiles_of(b) + set - 1) / set; };
    run_items(x, {x.heads_kv, p.count}, sets_of, threads, stream, [&](int64_t worker, const Item &item) {
      run(x, z, p, set, item, slots + worker * z.slot_words, partial);
    });
    if (p.count > 1)
      run_items(x, {x.heads_kv, 1}, tiles_of, threads, stream, [&](int64_t worker, const Item &item) {
        combine(x, z, p, item, slots + worker * z.slot_words, partial);
      });
    return TW_OK;
  }
};

}  // namespace tw
