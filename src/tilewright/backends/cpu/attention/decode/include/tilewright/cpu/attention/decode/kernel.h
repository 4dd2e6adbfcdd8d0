// The decode pipeline, for a few rows and many keys: the cache is read once, where it lies, at the speed of memory.
//
// The rows of all query heads of a head of keys are one small matrix; each block of keys is multiplied with all of them
// while it is near.  Few rows have elements of a head in lanes (attention_decode_rows.h), many have rows there
// (attention_decode_lanes.h).  Heads of keys that lie side by side are traversed together, block by block, for memory is
// fast only in its own order; what the next block needs is prefetched while this one is multiplied.
#pragma once
#include <tilewright/cpu/attention/careful.h>
#include <tilewright/cpu/attention/decode/lanes.h>
#include <tilewright/cpu/attention/decode/rows.h>
#include <tilewright/cpu/attention/plan.h>

namespace tw {

// Config: as attention_rules.h says, and tile_m (most rows of a pass), tile_n (keys of a block).
template <class Config> struct AttentionDecode {
  using Q = typename Config::Q;
  using K = typename Config::KV;
  using O = typename Config::O;
  using By = DecodeRows<Config>;
  using InLanes = DecodeLanes<Config>;
  static constexpr int step = By::step, whole = By::whole;
  static constexpr int64_t block = Config::tile_n, listed = block + lanes;
  static constexpr int pass_most = Config::tile_m;
  static constexpr int middle = pass_most < 4 ? pass_most : 4;  // rows of a pass: 1, these, or the most
  static constexpr int across_most = lanes / 2;                 // rows that have elements in lanes
  static constexpr int accum_most = vector_bytes == 64 ? 16 : 8;
  static constexpr int64_t run_bytes = 8 << 10, near_bytes = 128 << 10;  // of a row; of a block, all heads of a set
  static_assert(block % lanes == 0 && pass_most <= lanes && (pass_most & (pass_most - 1)) == 0, "tiles do not divide");
  static_assert(plain_enough<Config>, "left to the loops");
  // Where gradients may follow, scores are added up as their kernels do (dot.h), which those of rows in lanes are.
  static constexpr bool in_order = Config::lse && same<Q, float>::value && same<K, float>::value;

  // ---- sizes -------------------------------------------------------------------------------
  struct Sizes {
    bool in_lanes;
    int64_t rows, pass, q_vectors, vectors;       // rows there may be, rows at once, vectors of a query and of a value
    int64_t heads, sets, span, k_bytes, v_bytes;  // heads of a set, keys of a block, bytes of a row for all of them
    int64_t short_words, copy_words, q_words, part_words, head_words, slot_words, shortest;

    __attribute__((noinline)) explicit Sizes(const tw_attention_args &x) {
      int64_t there = most(1, x.heads_q / x.heads_kv * x.rows);
      in_lanes = there > across_most || in_order;
      pass = there > 4 ? pass_most : there > 1 ? middle : 1;
      rows = up(there, in_lanes ? InLanes::panel : pass);
      q_vectors = (x.head_qk + whole - 1) / whole, vectors = (x.head_v + whole - 1) / whole * step;
      together(x, there);
      part_words = rows * (vectors * lanes + 2);
      q_words = in_lanes ? rows * ((x.head_qk + step - 1) / step) : rows * q_vectors * lanes;
      head_words = up(part_words + q_words, 16);
      short_words = (x.head_qk < whole || x.head_v < whole ? 2 * block : 0) * int64_t(whole * sizeof(K)) / 4;
      copy_words = in_lanes && InLanes::copied(x) ? block * InLanes::copied_words(x.head_qk) : 0;
      slot_words = up(6 * 2 * listed + 8 * block + rows * (InLanes::block + 1), 16) + short_words + copy_words +
                   heads * head_words;
    }

   private:
    static TW_INLINE bool beside(const tw_attention_strides &at, int64_t heads, int64_t size) {
      return at.head > 0 && at.head <= 2 * size && at.row >= at.head * heads;
    }
    // How many heads are traversed together: those that make a row long, if enough items are left for many threads.
    TW_INLINE void together(const tw_attention_args &x, int64_t there) {
      int64_t head_bytes = most(x.k_strides.head, x.v_strides.head) * int64_t(sizeof(K));
      bool side_by_side = beside(x.k_strides, x.heads_kv, x.head_qk) && beside(x.v_strides, x.heads_kv, x.head_v);
      heads = side_by_side ? least(x.heads_kv, most(1, run_bytes / head_bytes)) : 1;
      shortest = up(most(256, 32 * there), 64);
      int64_t items = x.batch * most(1, x.keys / shortest), needed = (Parts::enough / 2 + items - 1) / most(1, items);
      heads = most(1, least(heads, x.heads_kv / most(1, needed)));
      sets = (x.heads_kv + heads - 1) / heads;
      k_bytes = ((heads - 1) * x.k_strides.head + x.head_qk) * int64_t(sizeof(K));
      v_bytes = ((heads - 1) * x.v_strides.head + x.head_v) * int64_t(sizeof(K));
      int64_t fits = near_bytes / (k_bytes + v_bytes) / lanes * lanes;
      span = heads > 1 ? least(block, most(up(16, lanes), fits)) : block;
    }
  };
  static TW_INLINE Parts parts(const tw_attention_args &x, const Sizes &z) {
    return Parts(x.batch * z.sets, x.keys, z.shortest);
  }
  static TW_INLINE int64_t parts_words(const tw_attention_args &x, const Sizes &z, const Parts &p) {
    return p.count > 1 ? up(x.batch * x.heads_kv * p.count * z.part_words, 16) : 0;
  }
  static int64_t workspace(const tw_attention_args &x, int64_t threads) {
    Sizes z(x);
    return (parts_words(x, z, parts(x, z)) + threads * z.slot_words) * 4 + 64;
  }

  // What is kept of one head of keys from block to block; the first three are what a split leaves.
  struct Head {
    float *top, *sum, *out;  // by row
    uint32_t *q;
  };
  struct Lists {
    const K **k, **v;  // rows of a block, of the first head of a set
  };
  struct Slot {
    Lists now, next, copies;
    float *scores, *shrink;
    K *k_short, *v_short;  // copies of rows that are shorter than a vector
    uint32_t *copy, *heads;
    Ahead::Run *runs;
    TW_INLINE Slot(const Sizes &z, uint32_t *words) {
      auto **list = reinterpret_cast<const K **>(words);
      now = {list, list + listed}, next = {list + 2 * listed, list + 3 * listed};
      copies = {list + 4 * listed, list + 5 * listed};
      runs = reinterpret_cast<Ahead::Run *>(list + 6 * listed);
      scores = reinterpret_cast<float *>(runs + 2 * block), shrink = scores + z.rows * InLanes::block;
      heads = words + z.slot_words - z.heads * z.head_words;
      copy = heads - z.copy_words;
      k_short = reinterpret_cast<K *>(copy - z.short_words), v_short = k_short + block * whole;
    }
    TW_INLINE Head head(const Sizes &z, int64_t n) const {
      auto *top = reinterpret_cast<float *>(heads + n * z.head_words);
      return {top, top + z.rows, top + 2 * z.rows, heads + n * z.head_words + z.part_words};
    }
  };

  // ---- a block of keys of one head ---------------------------------------------------------------
  // Rows shorter than a vector are copied, so that whole vectors may be read.
  static __attribute__((noinline)) void copy_short(const K *const *rows, int64_t shift, int64_t count, int64_t size,
                                                   K *to, const K **places) {
    for (int64_t j = 0; j < count; ++j, to += whole) {
      __builtin_memset(to, 0, whole * sizeof(K));
      __builtin_memcpy(to, rows[j] + shift, size_t(size) * sizeof(K));
      places[j] = to;
    }
  }
  static TW_INLINE void repeat_last(const Lists &to, int64_t keys) {
    for (int64_t j = keys; j < keys + lanes; ++j) to.k[j] = to.k[keys - 1];
    to.v[keys] = to.v[keys - 1];
  }

  // One head of keys: a block of them that begins with j0, `share` to be prefetched at each.
  struct Unit {
    const tw_attention_args &x;
    const Sequence &s;
    const Packed &all;
    const Sizes &z;
    const Slot &t;
    Head own;
    int64_t kv_head, j0, keys, share;
    Lists rows;
    int64_t k_shift, v_shift;
  };

  // Scores of a block to weights, row by row.
  static __attribute__((noinline)) void weigh_rows(const Unit &u) {
    for (int64_t r = 0; r < u.all.total(); ++r) {
      float *scores = u.t.scores + r * block;
      int64_t wide = up(u.keys, lanes);
      if constexpr (touched<Config> || bounded<Config>) {
        int64_t i = u.all.row(r);
        if (touched<Config> || u.s.from(u.x, i) > u.j0 || u.s.to(u.x, i) < u.j0 + u.keys)
          By::touch(u.x, u.s, u.all.head(u.kv_head, r), i, u.j0, u.keys, scores);
      }
      for (int64_t j = u.keys; j < wide; ++j) scores[j] = minus_infinity;
      By::weigh_row(scores, wide, u.own.top[r], u.own.sum[r], u.t.shrink[r]);
    }
  }
  template <int Rows> static __attribute__((noinline)) void scores_by_row(const Unit &u, Ahead &ahead) {
    constexpr int64_t count = lanes / Rows;
    const float factor = float(u.x.scale);
    for (int64_t j = 0; j < u.keys; j += count) {
      ahead.ask(u.share * count);
      for (int64_t r = 0; r < u.z.rows; r += Rows)
        By::template dots<Rows>(u.rows.k + j, u.k_shift, u.own.q + r * u.z.q_vectors * lanes, u.z.q_vectors,
                                u.x.head_qk, factor, u.t.scores + r * block + j);
    }
    weigh_rows(u);
  }
  static __attribute__((noinline)) void scores_in_lanes(const Unit &u, Ahead &ahead) {
    uint32_t *copy = u.z.copy_words ? u.t.copy : nullptr;
    if (copy) InLanes::copy(u.rows.k, u.k_shift, u.keys, u.x.head_qk, copy);
    typename InLanes::Keys from{u.rows.k, u.k_shift, u.j0, u.keys, copy, InLanes::copied_words(u.x.head_qk)};
    int64_t groups = (u.x.head_qk + step - 1) / step, panels = (u.all.total() + InLanes::panel - 1) / InLanes::panel;
    for (int64_t r = 0; r < u.all.total(); r += InLanes::panel) {
      typename InLanes::Panel panel{u.own.q + r * groups, u.own.top + r, u.own.sum + r, u.t.scores + r * InLanes::block,
                                    u.t.shrink + r};
      InLanes::weights(u.x, u.s, u.all, u.kv_head, r, from, panel, ahead, u.share / panels);
    }
  }
  template <int Rows, bool RowsInLanes> static void values(const Unit &u, Ahead &ahead) {
    constexpr int wide = accum_most / Rows > 4 ? 4 : accum_most / Rows < step ? step : accum_most / Rows;
    typename By::Values from{u.rows.v, u.v_shift, u.keys, u.x.head_v, u.z.vectors};
    int64_t passes = (u.all.total() + Rows - 1) / Rows, panel = InLanes::panel;
    for (int64_t r = 0; r < u.all.total(); r += Rows) {
      typename By::Weights by{u.t.scores + r * block, 0, u.t.shrink + r};
      if constexpr (RowsInLanes)
        by.words = u.t.scores + r / panel * panel * InLanes::block + r % panel,
        by.width = InLanes::wide(u.all, r / panel * panel);
      By::template all_values<Rows, wide, RowsInLanes>(from, by, u.own.out + r * u.z.vectors * lanes, ahead,
                                                       u.share * step / passes);
    }
  }
  // As many keys as rows at once is what reads least.
  template <int Rows> static void by_row(const Unit &u, Ahead &ahead) {
    scores_by_row<(Rows < 4 ? Rows : 4)>(u, ahead);
    values<Rows, false>(u, ahead);
  }
  static __attribute__((noinline)) void multiply(Unit &u, Ahead &ahead) {
    if (u.x.head_qk < whole && !u.z.in_lanes) {
      copy_short(u.rows.k, u.k_shift, u.keys, u.x.head_qk, u.t.k_short, u.t.copies.k);
      u.rows.k = u.t.copies.k, u.k_shift = 0;
      for (int64_t j = u.keys; j < u.keys + lanes; ++j) u.rows.k[j] = u.rows.k[u.keys - 1];
    }
    if (u.x.head_v < whole) {
      copy_short(u.rows.v, u.v_shift, u.keys, u.x.head_v, u.t.v_short, u.t.copies.v);
      u.rows.v = u.t.copies.v, u.v_shift = 0;
      u.rows.v[u.keys] = u.rows.v[u.keys - 1];
    }
    if constexpr (in_order) {
      scores_in_lanes(u, ahead);
      if (u.z.pass == 1) values<1, true>(u, ahead);
      else if (u.z.pass == middle) values<middle, true>(u, ahead);
      else values<pass_most, true>(u, ahead);
    } else if (u.z.in_lanes) {
      scores_in_lanes(u, ahead);
      values<pass_most, true>(u, ahead);
    } else if (u.z.pass == 1) by_row<1>(u, ahead);
    else if (u.z.pass == middle) by_row<middle>(u, ahead);
    else if constexpr (across_most > 4) by_row<pass_most>(u, ahead);
  }

  // ---- an item -----------------------------------------------------------------------------------
  static __attribute__((noinline)) void begin(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                              const Sizes &z, const Head &own, int64_t kv_head, int64_t part) {
    __builtin_memset(own.q, 0, size_t(z.q_words) * 4);
    __builtin_memset(own.out, 0, size_t(z.rows * z.vectors * lanes) * 4);
    for (int64_t r = 0; r < z.rows; ++r) {
      const bool sink = Config::sink && part == 0 && r < all.total();
      own.top[r] = minus_infinity, own.sum[r] = sink ? 1.0f : 0.0f;
      if (r >= all.total()) continue;
      int64_t head = all.head(kv_head, r), panel = r / InLanes::panel * InLanes::panel;
      if (sink) own.top[r] = static_cast<const float *>(x.sink)[head];
      if (own.top[r] != own.top[r]) own.sum[r] = own.top[r];
      const Q *from = q_row<Q>(x, s, head, all.row(r));
      if (z.in_lanes)
        InLanes::pack_query(x, from, r - panel, InLanes::wide(all, panel),
                            own.q + panel * ((x.head_qk + step - 1) / step));
      else By::pack_query(x, from, z.q_vectors, own.q + r * z.q_vectors * lanes);
    }
  }

  static __attribute__((noinline)) void finish(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                               const Sizes &z, int64_t kv_head, const Head &own) {
    for (int64_t r = 0; r < all.total(); ++r) {
      int64_t head = all.head(kv_head, r), i = all.row(r);
      // The last vector of a key repeats some of it, beside zeros: what is infinite there is no number then.
      const bool repeats = !z.in_lanes && x.head_qk > whole && x.head_qk % whole != 0;
      if (repeats && own.sum[r] != own.sum[r]) Careful<Config>::weights(x, s, kv_head, head, i, own.top[r], own.sum[r]);
      float share = own.sum[r] == 0.0f ? 0.0f : 1.0f / own.sum[r];
      O *to = o_row<O>(x, s, head, i);
      vf doubt{};  // a NaN anywhere stays
      for (int64_t n = 0; n < z.vectors; n += step) {
        float part[step][lanes], line[whole];
        for (int t = 0; t < step; ++t) {
          vf found = load_f(own.out + (r * z.vectors + n + t) * lanes) * share;
          doubt += found - found;
          store_f(part[t], found);
        }
        for (int l = 0; l < lanes; ++l)
          for (int t = 0; t < step; ++t) line[l * step + t] = part[t][l];
        int64_t at = By::place(n / step, x.head_v, whole);
        for (int t = 0; t < whole && t < x.head_v; t += lanes)
          store_from_float(to + at + t, load_f(line + t), x.head_v - t);
      }
      float all_of = sum_lanes(doubt);
      if (all_of != all_of && own.sum[r] == own.sum[r])
        Careful<Config>::row(x, s, kv_head, head, i, own.top[r], own.sum[r], to);
      if constexpr (Config::lse) *lse_at(x, s, head, i) = lse_of(own.top[r], own.sum[r]);
    }
  }

  // Keys from to to, for all heads of a set.
  static __attribute__((noinline)) void traversal(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                                  const Sizes &z, Slot &t, int64_t first, int64_t heads, int64_t from,
                                                  int64_t to) {
    Rows<K> k(x, s, x.k, x.k_strides, first), v(x, s, x.v, x.v_strides, first);
    int64_t keys = least(z.span, to - from), lines = (z.k_bytes + z.v_bytes) / Ahead::line + 2;
    k.list(from, from + keys, t.now.k), v.list(from, from + keys, t.now.v);
    for (int64_t j = from; j < to; j += keys, keys = least(z.span, to - j)) {
      int64_t after = least(z.span, to - j - keys), j1 = j + keys;
      k.list(j1, j1 + after, t.next.k), v.list(j1, j1 + after, t.next.v);
      repeat_last(t.now, keys);
      Ahead ahead{t.runs};
      ahead.add(k, j1, j1 + after, z.k_bytes), ahead.add(v, j1, j1 + after, z.v_bytes);
      int64_t share = after * lines * Ahead::one / (2 * keys * heads) + 1;
      for (int64_t n = 0; n < heads; ++n) {
        Unit u{x,
               s,
               all,
               z,
               t,
               t.head(z, n),
               first + n,
               j,
               keys,
               share,
               t.now,
               n * x.k_strides.head,
               n * x.v_strides.head};
        multiply(u, ahead);
      }
      Lists done = t.now;
      t.now = t.next, t.next = done;
    }
  }

  static void run(const tw_attention_args &x, const Sizes &z, const Parts &p, const Item &item, uint32_t *words,
                  float *partial) {
    Sequence s(x, item.sequence);
    Packed all(x, s);
    Slot t(z, words);
    int64_t low = p.count > 1 ? item.part * p.span : 0, high = p.count > 1 ? least(s.keys, low + p.span) : s.keys;
    if (item.part > 0 && low >= high) return;
    int64_t first = item.head * z.heads, heads = least(z.heads, x.heads_kv - first);
    for (int64_t n = 0; n < heads; ++n) begin(x, s, all, z, t.head(z, n), first + n, item.part);
    Segments seen(x.sink_keys, s.from(x, 0), s.to(x, s.rows - 1));
    for (int segment = 0; segment < 2; ++segment) {
      int64_t from = most(low, seen.from[segment]), to = least(high, seen.to[segment]);
      if (from < to) traversal(x, s, all, z, t, first, heads, from, to);
    }
    for (int64_t n = 0; n < heads; ++n) {
      if (p.count == 1) finish(x, s, all, z, first + n, t.head(z, n));
      else {
        int64_t at = (item.sequence * x.heads_kv + first + n) * p.count + item.part;
        __builtin_memcpy(partial + at * z.part_words, t.head(z, n).top, size_t(z.part_words) * 4);
      }
    }
  }

  // The splits of one head of keys combined.
  static void combine(const tw_attention_args &x, const Sizes &z, const Parts &p, const Item &item, uint32_t *words,
                      const float *partial) {
    Sequence s(x, item.sequence);
    Packed all(x, s);
    Head own = Slot(z, words).head(z, 0);
    int64_t used = most(1, least(p.count, (s.keys + p.span - 1) / p.span)), wide = z.vectors * lanes;
    const float *first = partial + (item.sequence * x.heads_kv + item.head) * p.count * z.part_words;
    for (int64_t r = 0; r < all.total(); ++r) {
      float top = minus_infinity, sum = 0.0f, *out = own.out + r * wide;
      for (int64_t n = 0; n < used; ++n) {
        float one = first[n * z.part_words + r];
        top = one > top ? one : top;
      }
      __builtin_memset(out, 0, size_t(wide) * 4);
      for (int64_t n = 0; n < used; ++n) {
        const float *from = first + n * z.part_words;
        vf weight = vexp_weight<true>(splat(from[r]) - subtracted(splat(top)));
        sum += weight[0] * from[z.rows + r];
        for (int64_t d = 0; d < wide; d += lanes)
          store_f(out + d, load_f(out + d) + weight * load_f(from + 2 * z.rows + r * wide + d));
      }
      own.top[r] = top, own.sum[r] = sum;
    }
    finish(x, s, all, z, item.head, own);
  }

  static int launch(const tw_attention_args &x, void *workspace, void *stream) {
    Sizes z(x);
    Parts p = parts(x, z);
    auto *partial = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    auto *slots = reinterpret_cast<uint32_t *>(partial) + parts_words(x, z, p);
    int64_t threads = useful_threads(x, team_size(stream));
    auto sets_of = [&](int64_t b) { return int64_t(Sequence(x, b).rows > 0); };
    // Parts, and then what puts them together: one body for both, for a second one is compiled for nothing.
    for (int stage = 0; stage < (p.count > 1 ? 2 : 1); ++stage) {
      const Shared among = stage ? Shared{x.heads_kv, 1} : Shared{z.sets, p.count};
      run_items(x, among, sets_of, threads, stream, [&](int64_t worker, const Item &item) {
        uint32_t *slot = slots + worker * z.slot_words;
        if (stage) combine(x, z, p, item, slot, partial);
        else run(x, z, p, item, slot, partial);
      });
    }
    return TW_OK;
  }
};

}  // namespace tw
