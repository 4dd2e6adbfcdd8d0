// What a decode kernel does with the rows of a head of keys, where lanes are elements of a head (in pairs of bf16 where
// the ISA multiplies such: a value's even elements, then its odd ones): scores by reductions across lanes, weights, values.
#pragma once
#include <tilewright/cpu/attention/micro.h>
#include <tilewright/cpu/attention/softmax.h>
#include <tilewright/cpu/attention/view.h>

namespace tw {

// What the next block needs, prefetched a little at a time while this one is multiplied, so that memory is never idle:
// runs of bytes in the order of memory, keys and then values.  Into the second-level cache, for the first has no room
// beside what is multiplied.
struct Ahead {
  static constexpr int64_t line = 64, one = 1024;  // bytes of a line; shares are given in 1024ths of one
  struct Run {
    uintptr_t at, end;
  };
  Run *runs;
  int64_t count = 0, due = 0;
  uintptr_t at = 0, end = 0;

  // Rows j0 to j1, `bytes` of each.
  template <class K> __attribute__((noinline)) void add(const Rows<K> &rows, int64_t j0, int64_t j1, int64_t bytes) {
    int64_t apart = rows.row * int64_t(sizeof(K)), left = rows.table ? rows.size - j0 % rows.size : j1 - j0;
    for (int64_t some; j0<j1; j0 += some, left = left> some ? left - some : rows.size) {
      some = apart > bytes ? 1 : least(left, j1 - j0);
      auto at = reinterpret_cast<uintptr_t>(rows.at(j0));
      runs[count++] = {at / line * line, at + uintptr_t((some - 1) * apart + bytes)};
    }
  }
  TW_INLINE void ask(int64_t share) {
    for (due += share; due >= one; due -= one) {
      if (at >= end) {
        if (count == 0) return;
        at = runs->at, end = runs->end;
        ++runs, --count;
      }
      __builtin_prefetch(reinterpret_cast<const void *>(at), 0, 2);
      at += line;
    }
  }
};

// Config: as attention_decode.h says.
template <class Config> struct DecodeRows {
  using Q = typename Config::Q;
  using K = typename Config::KV;
  using Bias = typename Config::Aux;
  using D = tw::Dot<Q, K>;
  static constexpr int step = D::step;
  static constexpr int64_t block = Config::tile_n;
  static constexpr int whole = lanes * step;  // elements of a vector of words

  // ---- scores --------------------------------------------------------------------------------
  // The last vector of a row that is no whole number of them ends with the row: what it repeats counts as 0 in q.
  static TW_INLINE int64_t place(int64_t n, int64_t size, int64_t each) {
    return least(n * each, most(0, size - each));
  }
  static void pack_query(const tw_attention_args &x, const Q *from, int64_t vectors, uint32_t *to) {
    for (int64_t n = 0; n < vectors; ++n) {
      vu words;
      if ((n + 1) * whole <= x.head_qk) words = D::along_k(from + n * whole);
      else {
        Q part[whole];
        __builtin_memset(part, 0, sizeof part);
        int64_t at = place(n, x.head_qk, whole);
        for (int64_t e = n * whole; e < x.head_qk; ++e) part[e - at] = from[e];
        words = D::along_k(static_cast<const Q *>(part));
      }
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
  template <int Rows> static __attribute__((noinline)) void dots(const K *const *keys, int64_t shift,
                                                                 const uint32_t *__restrict q, int64_t q_vectors,
                                                                 int64_t size, float factor, float *__restrict scores) {
    constexpr int count = lanes / Rows, some = count > 8 ? 8 : count;
    vf accum[lanes];
#pragma GCC unroll 2
    for (int first = 0; first < count; first += some) {
      vf part[some][Rows];
      const K *key[some];
#pragma GCC unroll 8
      for (int k = 0; k < some; ++k) {
        key[k] = keys[first + k] + shift;
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
        for (int r = 0; r < Rows; ++r) accum[r * count + first + k] = part[k][r];
    }
    fold_step<1>(accum);
    vf found = accum[0] * factor;
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
    vf slope = splat(slopes ? slope_of(x, s, head) : 0.0f), beside = splat(float(i + s.beside));
    int64_t from = s.from(x, i), to = s.to(x, i);
    vi count;
    for (int l = 0; l < lanes; ++l) count[l] = l;
    for (int64_t j = 0; j < keys; j += lanes) {
      int64_t some = least(lanes, keys - j);
      vi key = count + int32_t(j0 + j);
      vf score = load_f(scores + j);
      if constexpr (Config::softcap)
        if (x.softcap > 0) score = float(x.softcap) * vtanh(score * float(1 / x.softcap));
      if constexpr (added) {
        const Bias *bias = static_cast<const Bias *>(x.bias) + at_strides(x.bias_strides, s, head, i, j0 + j);
        score += biases(bias, x.bias_strides[3], some);
      }
      if constexpr (slopes) score -= slope * vabs(beside - __builtin_convertvector(key, vf));
      vi shown = (vi(key >= int32_t(from)) | vi(key < int32_t(x.sink_keys))) & vi(key < int32_t(to));
      if constexpr (Config::masked) {
        auto *mask = static_cast<const uint8_t *>(x.mask) + at_strides(x.mask_strides, s, head, i, j0 + j);
        shown &= vi(mask_bytes(mask, x.mask_strides[3], some) != 0u);
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
      vf e = weight_of<D>(load_f(scores + j) - less);
      total += e;
      // Weights are not negative: rounding is adding half and cutting.
      if constexpr (step == 1) store_f(scores + j, e);
      else store_narrow(reinterpret_cast<uint16_t *>(scores) + j, (vu(e) + 0x8000u) >> 16);
    }
    shrink = weight_of<D>(splat(top) - less)[0];
    sum = sum * shrink + sum_lanes(total);
    top = now;
  }

  // ---- values --------------------------------------------------------------------------------
  // The values of a block, which lie `shift` elements behind the pointers; vectors of a row of results.
  struct Values {
    const K *const *rows;
    int64_t shift, keys, size, vectors;
  };
  // Weights of Rows rows in words, one for each pair of keys where such are multiplied: by row, or `width` words from
  // keys to keys where lanes are rows.
  struct Weights {
    const float *words;
    int64_t width;
    const float *shrink;
  };

  // A pointer in one register: compilers would rather have one for every distance from it.
  static TW_INLINE const K *one_place(const K *x) {
    asm("" : "+r"(x));
    return x;
  }
  // In a register, where more than one row reads it.
  template <int Rows> static TW_INLINE vu kept(vu x) { return Rows > 1 ? held(x) : x; }

  // Rows rows of weights times the values of a block, Vectors vectors of them from the n-th on.
  template <int Rows, int Vectors, bool InLanes>
  static __attribute__((noinline)) void add_values(const Values &from, int64_t n, const Weights &by,
                                                   float *__restrict out, Ahead &ahead, int64_t share) {
    vf accum[Rows][Vectors];
    Ahead next = ahead;  // in registers
    const int64_t vectors = from.vectors, keys = from.keys, apart = InLanes ? by.width : 1;
    constexpr int64_t row = InLanes ? 1 : block;
    constexpr bool at_once =
        Rows == 1 && step == 1;  // with eight values beside eight accumulators, one of 16 registers spills
    const int64_t at = from.shift + place(n / step, from.size, whole);
    auto *word = reinterpret_cast<const word_any *>(by.words);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[r][v] = vf{};
    for (int64_t j = 0; j < keys; j += step, word += apart) {
      next.ask(share);
      const K *first = one_place(from.rows[j] + at), *second = step == 2 ? one_place(from.rows[j + 1] + at) : first;
      vu value[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; v += step) {
        vu one = D::along_k(first + v * lanes);
        if constexpr (step == 2) {
          vu two = D::along_k(second + v * lanes);
          value[v + 1] = kept<Rows>(one >> 16 | (two & 0xffff0000u));
          one = (one & 0xffffu) | two << 16;
        }
        value[v] = kept<Rows>(one);
        if constexpr (at_once) accum[0][v] = D::mac(accum[0][v], splat(*word), held(one));
      }
      if constexpr (!at_once)
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          vu weight = splat(word[r * row]);
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) accum[r][v] = D::mac(accum[r][v], weight, value[v]);
        }
    }
    ahead = next;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        float *to = out + (r * vectors + n + v) * lanes;
        store_f(to, load_f(to) * by.shrink[r] + accum[r][v]);
      }
  }
  // All vectors; `share` is what is prefetched at each key, or pair of them.  Many at once only of those that lie whole
  // behind one another: the last one of a row may not.  What is left goes by the fewest: sizes between are compiled for
  // longer than they save.
  template <int Rows, int Vectors, bool InLanes> static TW_INLINE void all_values(const Values &from, const Weights &by,
                                                                                  float *out, Ahead &ahead,
                                                                                  int64_t share, int64_t n = 0) {
    const int64_t end = Vectors > step ? from.size / whole * step : from.vectors;
    for (; n + Vectors <= end; n += Vectors)
      add_values<Rows, Vectors, InLanes>(from, n, by, out, ahead, share * Vectors / from.vectors);
    if constexpr (Vectors > step) all_values<Rows, step, InLanes>(from, by, out, ahead, share, n);
  }
};

}  // namespace tw
