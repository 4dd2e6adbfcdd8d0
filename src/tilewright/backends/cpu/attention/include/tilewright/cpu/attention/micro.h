// The two products of tiled attention, transposed: lanes are queries.  Scores are (keys x queries), results
// (elements of a head x queries): keys and values are read where they lie, one word broadcast to all lanes, and a maximum
// or a sum along the keys never leaves its lane.  Only queries are transposed, once, and the result, once.
#pragma once
#include <tilewright/cpu/attention/softmax.h>
#include <tilewright/cpu/primitives/dot.h>

namespace tw {

typedef uint32_t word_any __attribute__((aligned(1), may_alias));

// Scores of Keys keys: out[key * width + query], and their maxima into top[query].  `q` is a panel of words (dot.h),
// group after group.  The factor comes last: queries that were scaled before would be rounded each.  The same key may stand in several rows: that changes no maximum.
template <class Dot, int Keys, int Vectors>
__attribute__((noinline)) void score_block(const void *const *rows, const uint32_t *__restrict q, int64_t groups,
                                           float factor, float *__restrict out, float *__restrict top) {
  constexpr int width = Vectors * lanes;
  vf accum[Keys][Vectors];
  const word_any *key[Keys];
#pragma GCC unroll 16
  for (int i = 0; i < Keys; ++i) key[i] = static_cast<const word_any *>(rows[i]);
  auto clear = [&] {
#pragma GCC unroll 16
    for (int i = 0; i < Keys; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[i][v] = vf{};
  };
  clear();
  auto step = [&](int64_t g) {
    vu columns[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) columns[v] = load_u(q + g * width + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Keys; ++i) {
      vu word = splat(key[i][g]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[i][v] = Dot::mac(accum[i][v], word, columns[v]);
    }
  };
  // All runs but the last (dot.h) are added up in `out`.
  int64_t g = 0;
  const int64_t last = Dot::step == 1 && groups > score_run ? (groups - 1) / score_run * score_run : 0;
  while (g < last) {
    const int64_t end = g + score_run;
    const bool first = g == 0;
#pragma GCC unroll 1
    for (; g < end; ++g) step(g);
#pragma GCC unroll 16
    for (int i = 0; i < Keys; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        float *to = out + i * width + v * lanes;
        store_f(to, first ? accum[i][v] : load_f(to) + accum[i][v]);
      }
    clear();
  }
#pragma GCC unroll 1
  for (; g < groups; ++g) step(g);
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) {
    vf highest = load_f(top + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Keys; ++i) {
      if (last > 0) accum[i][v] = load_f(out + i * width + v * lanes) + accum[i][v];
      accum[i][v] *= factor;
      store_f(out + i * width + v * lanes, accum[i][v]);
      highest = larger(accum[i][v], highest);
    }
    store_f(top + v * lanes, highest);
  }
}

// Elements of the result, Deep of them: out[element * width + query] = out * shrink[query] + the sum over keys of
// value[group * ld + element] times p[group * width + query], both in words.  What was there is added last: accumulators over
// thousands of keys are rounded once a block at their size, not once a key.
template <class Dot, int Deep, int Vectors>
__attribute__((noinline)) void value_block(const uint32_t *__restrict value, int64_t ld, const uint32_t *__restrict p,
                                           int64_t groups, const float *__restrict shrink, float *__restrict out) {
  constexpr int width = Vectors * lanes;
  vf accum[Deep][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Deep; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) accum[i][v] = vf{};
  const word_any *from = value;
  for (int64_t g = 0; g < groups; ++g, from += ld) {
    vu columns[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) columns[v] = load_u(p + g * width + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Deep; ++i) {
      vu word = splat(from[i]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[i][v] = Dot::mac(accum[i][v], word, columns[v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Deep; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      float *to = out + i * width + v * lanes;
      store_f(to, load_f(to) * load_f(shrink + v * lanes) + accum[i][v]);
    }
}

// Weights that are rounded to bf16 next need not be precise.
template <class Dot> TW_INLINE vf weight_of(vf x) { return vexp_weight<Dot::step == 1>(x); }

// Scores of `keys` keys become weights in place, in fp32 or in words of the dot product: e^(s - top).  `sum` grows by
// them, having shrunk as all results must: by `shrink`.
template <class Dot> __attribute__((noinline)) void weigh(float *scores, int64_t width, int64_t keys,
                                                          const float *__restrict top, float *__restrict before,
                                                          float *__restrict sum, float *__restrict shrink) {
  for (int64_t v = 0; v < width; v += lanes) {
    vf now = subtracted(load_f(top + v)), less = weight_of<Dot>(load_f(before + v) - now), total{};
    store_f(shrink + v, less);
    store_f(before + v, load_f(top + v));
    float *at = scores + v;
    if constexpr (Dot::step == 1) {
      for (int64_t j = 0; j < keys; ++j, at += width) {
        vf e = weight_of<Dot>(load_f(at) - now);
        total += e;
        store_f(at, e);
      }
    } else {
      // Pairs of bf16; weights are not negative, so that rounding is adding half and cutting.
      float *to = at;
      for (int64_t j = 0; j < keys; j += 2, at += 2 * width, to += width) {
        vf e = weight_of<Dot>(load_f(at) - now);
        vf f = j + 1 < keys ? weight_of<Dot>(load_f(at + width) - now) : vf{};
        total += e + f;
        store_u(to, (vu(e) + 0x8000u) >> 16 | ((vu(f) + 0x8000u) & 0xffff0000u));
      }
    }
    store_f(sum + v, load_f(sum + v) * less + total);
  }
}

}  // namespace tw
