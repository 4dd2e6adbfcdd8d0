// The decode pipeline, for a few rows and many keys: the cache is read once, where it lies, at the speed of memory.
//
// Lanes are elements of a head (in pairs of bf16 where the ISA multiplies such: a value's even elements, then its odd
// ones).  The rows of all query heads of a head of keys are one small matrix; each block of keys
// is multiplied with all of them while it is near, and while keys are read the values of the block are asked for.
#pragma once
#include <tilewright/cpu/attention_careful.h>
#include <tilewright/cpu/attention_micro.h>
#include <tilewright/cpu/attention_plan.h>
#include <tilewright/cpu/attention_softmax.h>
#include <tilewright/cpu/pack.h>

namespace tw {

// Config: as attention_rules.h says, and tile_m (most rows of a pass), tile_n (keys of a block).
template <class Config> struct AttentionDecode {
  using Q = typename Config::Q;
  using K = typename Config::KV;
  using O = typename Config::O;
  using Bias = typename Config::Aux;
  using D = tw::Dot<Q, K>;
  static constexpr int step = D::step;
  static constexpr int64_t block = Config::tile_n, rows_most = 64;
  static constexpr int pass_most = Config::tile_m, whole = lanes * step;  // elements of a vector of words
  static constexpr int middle = pass_most < 4 ? pass_most : 4;            // rows of a pass: 1, these, or the most
  static constexpr int sums_most = vector_bytes == 64 ? 16 : 8;
  static constexpr int64_t shortest_part = 256;
  static_assert(block % lanes == 0 && pass_most <= lanes && (pass_most & (pass_most - 1)) == 0, "tiles do not divide");
  static_assert(plain_enough<Config>, "left to the loops");

  static Answer broken(const tw_attention_args &x) {
    if (x.heads_q / x.heads_kv * x.rows > rows_most)
      return {TW_LIMIT, "rows of the query heads that share a head of keys are more than this kernel holds"};
    return {};
  }

  // ---- sizes -------------------------------------------------------------------------------
  struct Sizes {
    int64_t rows, pass, q_vectors, vectors;  // rows there may be, rows at once, vectors of a query and of a value
    int64_t short_words, slot_words, part_words;

    TW_INLINE explicit Sizes(const tw_attention_args &x) {
      int64_t there = x.heads_q / x.heads_kv * x.rows;
      pass = there > 4 ? pass_most : there > 1 ? middle : 1;
      rows = up(most(1, there), pass);
      q_vectors = (x.head_qk + whole - 1) / whole, vectors = (x.head_v + whole - 1) / whole * step;
      part_words = rows * (vectors * lanes + 2);
      short_words = (x.head_qk < whole || x.head_v < whole ? 3 * block : 0) * int64_t(whole * sizeof(K)) / 4;
      slot_words = up(part_words + rows * (q_vectors * lanes + block + 1) + 6 * (block + lanes) + 16, 16) + short_words;
    }
  };
  static TW_INLINE Parts parts(const tw_attention_args &x) {
    return Parts(x.batch * x.heads_kv, x.keys, shortest_part);
  }
  static TW_INLINE int64_t parts_words(const tw_attention_args &x, const Sizes &z, const Parts &p) {
    return p.count > 1 ? up(x.batch * x.heads_kv * p.count * z.part_words, 16) : 0;
  }
  static int64_t workspace(const tw_attention_args &x, int64_t threads) {
    Sizes z(x);
    return (parts_words(x, z, parts(x)) + threads * z.slot_words) * 4 + 64;
  }

  struct Slot {
    const K **k, **v, **next;  // where keys and values of a block are, and keys of the next
    uint32_t *q;
    float *scores, *shrink, *top, *sum, *out;  // by row; the last three are what a part leaves
    K *k_short, *next_short, *v_short;         // copies of rows that are shorter than a vector
    TW_INLINE Slot(const Sizes &z, uint32_t *words) {
      k = reinterpret_cast<const K **>(words), v = k + block + lanes, next = v + block + lanes;
      q = reinterpret_cast<uint32_t *>(next + block + lanes);
      scores = reinterpret_cast<float *>(q + z.rows * z.q_vectors * lanes);
      shrink = scores + z.rows * block, top = shrink + z.rows, sum = top + z.rows, out = sum + z.rows;
      v_short = reinterpret_cast<K *>(words + z.slot_words - z.short_words);
      k_short = v_short + block * whole, next_short = k_short + block * whole;
    }
  };

  // ---- scores --------------------------------------------------------------------------------
  // The last vector of a row that is no whole number of them ends with the row: what it repeats counts as 0 in q.
  static TW_INLINE int64_t place(int64_t n, int64_t size, int64_t each) {
    return least(n * each, most(0, size - each));
  }
  // Rows shorter than a vector are copied, so that whole vectors may be read.
  static __attribute__((noinline)) void copy_short(const K **rows, int64_t count, int64_t size, K *to) {
    for (int64_t j = 0; j < count; ++j, to += whole) {
      __builtin_memset(to, 0, whole * sizeof(K));
      __builtin_memcpy(to, rows[j], size_t(size) * sizeof(K));
      rows[j] = to;
    }
  }
  static void pack_query(const tw_attention_args &x, const Q *from, int64_t vectors, uint32_t *to) {
    vf factor = splat(step == 1 ? float(x.scale) * log2_e : 1.0f);
    for (int64_t n = 0; n < vectors; ++n) {
      Q part[whole];
      __builtin_memset(part, 0, sizeof part);
      int64_t at = place(n, x.head_qk, whole);
      for (int64_t e = n * whole; e < x.head_qk && e < (n + 1) * whole; ++e) part[e - at] = from[e];
      vu words = D::along_k(static_cast<const Q *>(part));
      if constexpr (step == 1) words = vu(vf(words) * factor);
      store_u(to + n * lanes, words);
    }
  }

  // Vector t of `lanes` summed into lane t: of two vectors the lanes that stay are blended, which is nearly free, and
  // those that come are the one shuffle.
  template <int Distance> static TW_INLINE void fold_step(vf (&rows)[lanes]) {
    if constexpr (Distance < lanes) {
#pragma GCC unroll 16
      for (int i = 0; i < lanes; i += 2 * Distance) {
        vf x = rows[i], y = rows[i + Distance];
#if defined(__clang__)
        vf stay, come;
        for (int j = 0; j < lanes; ++j) {
          stay[j] = (j & Distance) ? y[j] : x[j];
          come[j] = (j & Distance) ? y[j - Distance] : x[j + Distance];
        }
        rows[i] = stay + come;
#else
        vi stay, come;
        for (int j = 0; j < lanes; ++j) {
          stay[j] = (j & Distance) ? j + lanes : j;
          come[j] = (j & Distance) ? j - Distance + lanes : j + Distance;
        }
        rows[i] = __builtin_shuffle(x, y, stay) + __builtin_shuffle(x, y, come);
#endif
      }
      fold_step<Distance * 2>(rows);
    }
  }

  // lanes / Rows keys times Rows rows: scores[row * block + key].
  template <int Rows> static __attribute__((noinline)) void dots(const K *const *keys, const uint32_t *__restrict q,
                                                                 int64_t q_vectors, int64_t size, float factor,
                                                                 float *__restrict scores) {
    constexpr int count = lanes / Rows, some = count > 8 ? 8 : count;
    vf sums[lanes];
#pragma GCC unroll 2
    for (int first = 0; first < count; first += some) {
      vf part[some][Rows];
      const K *key[some];
#pragma GCC unroll 8
      for (int k = 0; k < some; ++k) {
        key[k] = keys[first + k];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) part[k][r] = vf{};
      }
      for (int64_t n = 0; n < q_vectors; ++n) {
        vu row[Rows];
        int64_t at = place(n, size, whole);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) row[r] = load_u(q + (r * q_vectors + n) * lanes);
#pragma GCC unroll 8
        for (int k = 0; k < some; ++k) {
          vu words = held(D::along_k(key[k] + at));
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) part[k][r] = D::mac(part[k][r], row[r], words);
        }
      }
#pragma GCC unroll 8
      for (int k = 0; k < some; ++k)
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sums[r * count + first + k] = part[k][r];
    }
    fold_step<1>(sums);
    vf found = step == 1 ? sums[0] : sums[0] * factor;
    if constexpr (Rows == 1) store_f(scores, found);
    else {
      float apart[lanes];
      store_f(apart, found);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) __builtin_memcpy(scores + r * block, apart + r * count, count * 4);
    }
  }

  // ---- what scores meet, and their weights -----------------------------------------------------
  // Scores of one row for keys j0 to j0 + keys.
  static __attribute__((noinline)) void touch(const tw_attention_args &x, const Sequence &s, int64_t head, int64_t i,
                                              int64_t j0, int64_t keys, float *scores) {
    constexpr bool slopes = Config::bias == AttentionBias::alibi, added = Config::bias == AttentionBias::tensor;
    vf slope = splat(slopes ? slope_of(x, s, head) * log2_e : 0.0f), beside = splat(float(i + s.beside));
    int64_t from = s.from(x, i), to = s.to(x, i);
    vi count;
    for (int l = 0; l < lanes; ++l) count[l] = l;
    for (int64_t j = 0; j < keys; j += lanes) {
      int64_t some = least(lanes, keys - j);
      vi key = count + int32_t(j0 + j);
      vf score = load_f(scores + j);
      if constexpr (Config::softcap)
        if (x.softcap > 0) score = float(x.softcap) * log2_e * vtanh(score * float(ln_2 / x.softcap));
      if constexpr (added) {
        const Bias *bias = static_cast<const Bias *>(x.bias) + at_strides(x.bias_strides, s, head, i, j0 + j);
        vf more{};
        if (x.bias_strides[3] == 1) more = load_as_float(bias, some);
        else
          for (int64_t l = 0; l < lanes && l < some; ++l) more[l] = to_float(bias[l * x.bias_strides[3]]);
        score += more * log2_e;
      }
      if constexpr (slopes) score -= slope * vabs(beside - __builtin_convertvector(key, vf));
      vi shown = (vi(key >= int32_t(from)) | vi(key < int32_t(x.sink_keys))) & vi(key < int32_t(to));
      if constexpr (Config::masked) {
        auto *mask = static_cast<const uint8_t *>(x.mask) + at_strides(x.mask_strides, s, head, i, j0 + j);
        for (int64_t l = 0; l < lanes && l < some; ++l)
          if (!mask[l * x.mask_strides[3]]) shown[l] = 0;
      }
      store_f(scores + j, select(shown, score, splat(minus_infinity)));
    }
  }

  // Scores of a row (`wide` of them, whole vectors) to weights.
  static TW_INLINE void weigh_row(float *scores, int64_t wide, float &top, float &sum, float &shrink) {
    vf highest = splat(top), total{};
    for (int64_t j = 0; j < wide; j += lanes) highest = larger(load_f(scores + j), highest);
    float now = largest_lane(highest);
    vf less = subtracted(splat(now));
    for (int64_t j = 0; j < wide; j += lanes) {
      vf e = vexp2(load_f(scores + j) - less);
      total += e;
      // Weights are not negative: rounding is adding half and cutting.
      if constexpr (step == 1) store_f(scores + j, e);
      else store_narrow(reinterpret_cast<uint16_t *>(scores) + j, (vu(e) + 0x8000u) >> 16);
    }
    shrink = vexp2(splat(top) - less)[0];
    sum = sum * shrink + sum_lanes(total);
    top = now;
  }

  // Into the second-level cache: the first has no room for what the other half of a block needs.
  static TW_INLINE void ask_for(const K *row, int64_t first, int64_t last) {
    for (int64_t at = first; at < last; at += 64) __builtin_prefetch(reinterpret_cast<const char *>(row) + at, 0, 2);
  }

  // ---- values --------------------------------------------------------------------------------
  // Rows rows of weights times `keys` values, Vectors vectors of them from the n-th on.  On the way keys of the next
  // block are asked for, a part of each in every pass: memory is busy all the time.
  template <int Rows, int Vectors>
  static __attribute__((noinline)) void add_values(const K *const *values, int64_t keys, int64_t n, int64_t vectors,
                                                   int64_t size, const float *__restrict weights,
                                                   const float *__restrict shrink, float *__restrict out,
                                                   const K *const *next, int64_t first, int64_t last) {
    vf sums[Rows][Vectors];
    int64_t at[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; v += step) at[v] = place((n + v) / step, size, whole);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[r][v] = load_f(out + (r * vectors + n + v) * lanes) * shrink[r];
    for (int64_t j = 0; j < keys; j += step) {
      vu value[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; v += step) {
        vu one = D::along_k(values[j] + at[v]);
        if constexpr (step == 2) {
          vu two = D::along_k(values[j + 1] + at[v]);
          value[v + 1] = held(one >> 16 | (two & 0xffff0000u));
          one = (one & 0xffffu) | two << 16;
        }
        value[v] = held(one);
      }
#pragma GCC unroll 2
      for (int t = 0; t < step; ++t) ask_for(next[j + t], first, last);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        vu weight = splat(reinterpret_cast<const word_any *>(weights + r * block)[j / step]);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = D::mac(sums[r][v], weight, value[v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) store_f(out + (r * vectors + n + v) * lanes, sums[r][v]);
  }
  template <int Rows, int Vectors> static TW_INLINE void all_values(const Slot &t, const Sizes &z, int64_t keys,
                                                                    int64_t size, int64_t r, int64_t n, int64_t ahead) {
    for (; n + Vectors <= z.vectors; n += Vectors) {
      int64_t first = up(ahead * n / z.vectors, 64), last = r ? 0 : ahead * (n + Vectors) / z.vectors;
      add_values<Rows, Vectors>(t.v, keys, n, z.vectors, size, t.scores + r * block, t.shrink + r,
                                t.out + r * z.vectors * lanes, t.next, first, last);
    }
    if constexpr (Vectors > step) all_values<Rows, Vectors / 2>(t, z, keys, size, r, n, ahead);
  }

  // ---- a block of keys, an item ------------------------------------------------------------------
  // Scores of a block to weights, row by row.
  static __attribute__((noinline)) void weigh_rows(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                                   const Slot &t, int64_t kv_head, int64_t j0, int64_t keys) {
    constexpr bool special = touched<Config>;
    for (int64_t r = 0; r < all.total(); ++r) {
      float *scores = t.scores + r * block;
      int64_t i = all.row(r), wide = up(keys, lanes);
      if (special || s.from(x, i) > j0 || s.to(x, i) < j0 + keys)
        touch(x, s, all.head(kv_head, r), i, j0, keys, scores);
      for (int64_t j = keys; j < wide; ++j) scores[j] = minus_infinity;
      weigh_row(scores, wide, t.top[r], t.sum[r], t.shrink[r]);
    }
  }

  template <int Rows> static void one_block(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                            const Sizes &z, const Slot &t, int64_t kv_head, int64_t j0, int64_t keys,
                                            int64_t more) {
    constexpr int64_t count = lanes / Rows;
    constexpr int wide = sums_most / Rows > 8 ? 8 : sums_most / Rows < 1 ? 1 : sums_most / Rows;
    for (int64_t j = keys; j < keys + lanes; ++j) t.k[j] = t.k[keys - 1];
    t.v[keys] = t.v[keys - 1];
    float factor = float(x.scale) * log2_e;
    for (int64_t j = 0; j < keys; j += count) {
      for (int64_t l = j; l < least(j + count, keys); ++l) ask_for(t.v[l], 0, x.head_v * int64_t(sizeof(K)));
      for (int64_t r = 0; r < z.rows; r += Rows)
        dots<Rows>(t.k + j, t.q + r * z.q_vectors * lanes, z.q_vectors, x.head_qk, factor, t.scores + r * block + j);
    }
    weigh_rows(x, s, all, t, kv_head, j0, keys);
    for (int64_t r = 0; r < z.rows; r += Rows) all_values<Rows, wide>(t, z, keys, x.head_v, r, 0, more);
  }

  static __attribute__((noinline)) void begin(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                              const Sizes &z, const Slot &t, const Item &item) {
    __builtin_memset(t.q, 0, size_t(z.rows * z.q_vectors * lanes) * 4);
    __builtin_memset(t.out, 0, size_t(z.rows * z.vectors * lanes) * 4);
    for (int64_t r = 0; r < z.rows; ++r) {
      const bool sink = Config::sink && item.part == 0 && r < all.total();
      t.top[r] = minus_infinity, t.sum[r] = sink ? 1.0f : 0.0f, t.shrink[r] = 1.0f;
      if (r >= all.total()) continue;
      int64_t head = all.head(item.kv_head, r);
      if (sink) t.top[r] = static_cast<const float *>(x.sink)[head] * log2_e;
      if (t.top[r] != t.top[r]) t.sum[r] = t.top[r];
      pack_query(x, q_row<Q>(x, s, head, all.row(r)), z.q_vectors, t.q + r * z.q_vectors * lanes);
    }
  }

  static __attribute__((noinline)) void finish(const tw_attention_args &x, const Sequence &s, const Packed &all,
                                               const Sizes &z, int64_t kv_head, const float *top, const float *sum,
                                               const float *out) {
    for (int64_t r = 0; r < all.total(); ++r) {
      int64_t head = all.head(kv_head, r), i = all.row(r);
      float share = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
      O *to = o_row<O>(x, s, head, i);
      vf doubt{};  // a NaN anywhere stays
      float line[whole];
      for (int64_t n = 0; n < z.vectors; ++n) {
        vf found = load_f(out + (r * z.vectors + n) * lanes) * share;
        doubt += found - found;
        for (int l = 0; l < lanes; ++l) line[(n % step) + l * step] = found[l];
        if ((n + 1) % step) continue;
        int64_t at = place(n / step, x.head_v, whole);
        for (int t = 0; t < whole && t < x.head_v; t += lanes)
          store_from_float(to + at + t, load_f(line + t), x.head_v - t);
      }
      float all_of = sum_lanes(doubt);
      if (all_of != all_of && sum[r] == sum[r]) Careful<Config>::row(x, s, kv_head, head, i, top[r], sum[r], to);
      if constexpr (Config::lse) *lse_at(x, s, head, i) = natural_lse(top[r], sum[r]);
    }
  }

  static void run(const tw_attention_args &x, const Sizes &z, const Parts &p, const Item &item, uint32_t *words,
                  float *partial) {
    Sequence s(x, item.sequence);
    Packed all(x, s);
    Slot t(z, words);
    int64_t low = p.count > 1 ? item.part * p.span : 0, high = p.count > 1 ? least(s.keys, low + p.span) : s.keys;
    if (item.part > 0 && low >= high) return;
    begin(x, s, all, z, t, item);
    Rows<K> k(x, s, x.k, x.k_strides, item.kv_head), v(x, s, x.v, x.v_strides, item.kv_head);
    Segments seen(x.sink_keys, s.from(x, 0), s.to(x, s.rows - 1));
    for (int segment = 0; segment < 2; ++segment) {
      int64_t from = most(low, seen.from[segment]), to = least(high, seen.to[segment]);
      for (int64_t j = from; j < to; j += block) {
        int64_t keys = least(block, to - j);
        if (j == from) {
          k.list(j, j + keys, t.k);
          if (x.head_qk < whole) copy_short(t.k, keys, x.head_qk, t.k_short);
        }
        v.list(j, j + keys, t.v);
        if (x.head_v < whole) copy_short(t.v, keys, x.head_v, t.v_short);
        int64_t after = least(block, to - j - keys), more = after < keys ? 0 : x.head_qk * int64_t(sizeof(K));
        k.list(j + keys, j + keys + after, t.next);
        if (x.head_qk < whole) copy_short(t.next, after, x.head_qk, t.next_short);
        if (z.pass == 1) one_block<1>(x, s, all, z, t, item.kv_head, j, keys, more);
        else if (z.pass == middle) one_block<middle>(x, s, all, z, t, item.kv_head, j, keys, more);
        else one_block<pass_most>(x, s, all, z, t, item.kv_head, j, keys, more);
        const K **done = t.k;
        K *done_short = t.k_short;
        t.k = t.next, t.next = done;
        t.k_short = t.next_short, t.next_short = done_short;
      }
    }
    if (p.count == 1) return finish(x, s, all, z, item.kv_head, t.top, t.sum, t.out);
    int64_t at = (item.sequence * x.heads_kv + item.kv_head) * p.count + item.part;
    __builtin_memcpy(partial + at * z.part_words, t.top, size_t(z.part_words) * 4);
  }

  // The parts of one head of keys put together.
  static void combine(const tw_attention_args &x, const Sizes &z, const Parts &p, const Item &item, uint32_t *words,
                      const float *partial) {
    Sequence s(x, item.sequence);
    Packed all(x, s);
    Slot t(z, words);
    int64_t used = most(1, least(p.count, (s.keys + p.span - 1) / p.span)), wide = z.vectors * lanes;
    const float *first = partial + (item.sequence * x.heads_kv + item.kv_head) * p.count * z.part_words;
    for (int64_t r = 0; r < all.total(); ++r) {
      float top = minus_infinity, sum = 0.0f, *out = t.out + r * wide;
      for (int64_t n = 0; n < used; ++n) {
        float one = first[n * z.part_words + r];
        top = one > top ? one : top;
      }
      __builtin_memset(out, 0, size_t(wide) * 4);
      for (int64_t n = 0; n < used; ++n) {
        const float *from = first + n * z.part_words;
        vf weight = vexp2(splat(from[r]) - subtracted(splat(top)));
        sum += weight[0] * from[z.rows + r];
        for (int64_t d = 0; d < wide; d += lanes)
          store_f(out + d, load_f(out + d) + weight * load_f(from + 2 * z.rows + r * wide + d));
      }
      t.top[r] = top, t.sum[r] = sum;
    }
    finish(x, s, all, z, item.kv_head, t.top, t.sum, t.out);
  }

  static int launch(const tw_attention_args &x, void *workspace, void *stream) {
    Sizes z(x);
    Parts p = parts(x);
    auto *partial = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    auto *slots = reinterpret_cast<uint32_t *>(partial) + parts_words(x, z, p);
    int64_t threads = useful_threads(x, team_size(stream));
    auto sets_of = [&](int64_t b) { return int64_t(Sequence(x, b).rows > 0); };
    run_items(x, p.count, sets_of, threads, stream,
              [&](int64_t worker, const Item &item) { run(x, z, p, item, slots + worker * z.slot_words, partial); });
    if (p.count > 1)
      run_items(x, 1, sets_of, threads, stream, [&](int64_t worker, const Item &item) {
        combine(x, z, p, item, slots + worker * z.slot_words, partial);
      });
    return TW_OK;
  }
};

}  // namespace tw
