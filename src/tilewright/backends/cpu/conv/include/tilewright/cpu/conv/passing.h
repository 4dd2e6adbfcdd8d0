// The register block of backward-weight kernels: accumulators stay in registers while pixels go by.
//
// Where the dot product multiplies pairs (dot.h), a word holds a pixel and the next one of the line: `Dot::step` pixels go
// by at a time.
#pragma once
#include <tilewright/cpu/copies/pack.h>

namespace tw {

// `count` pixels: where the first one's single numbers and its vectors begin, in floats.
struct Span {
  int64_t singles, vectors, count;
};

typedef uint32_t word_any __attribute__((aligned(1), may_alias));

// What a block multiplies, and how many words lie between a pixel's, or a pair's, and the next one's.
struct Passing {
  const float *singles, *vectors;
  int64_t single_step, vector_step;
};

// kept[i][v] = the sum of singles[i] * vectors[v] over all pixels of the spans, added to what was kept unless it is the first.
template <class Dot, int Singles, int Vectors>
__attribute__((noinline)) void passing_block(const Span *spans, int64_t number, const Passing &o, bool first,
                                             float *kept, int64_t ld) {
  vf accum[Singles][Vectors];
#pragma GCC unroll 32
  for (int i = 0; i < Singles; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) accum[i][v] = first ? vf{} : load_f(kept + i * ld + v * lanes);
  for (int64_t s = 0; s < number; ++s) {
    const float *one = o.singles + spans[s].singles, *many = o.vectors + spans[s].vectors;
    if constexpr (Dot::step == 1)
      for (int64_t p = spans[s].count; p > 0; --p, one += o.single_step, many += o.vector_step) {
        vf columns[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) columns[v] = load_f(many + v * lanes);
#pragma GCC unroll 32
        for (int i = 0; i < Singles; ++i)
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) accum[i][v] = accum[i][v] + splat(one[i]) * columns[v];
      }
    else {
      auto pixels = [&](uint32_t there) __attribute__((always_inline)) {
        vu columns[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) columns[v] = load_u(many + v * lanes) & there;
#pragma GCC unroll 32
        for (int i = 0; i < Singles; ++i) {
          const vu word = splat(reinterpret_cast<const word_any *>(one)[i] & there);
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) accum[i][v] = Dot::mac(accum[i][v], word, columns[v]);
        }
      };
      int64_t p = spans[s].count;
      for (; p >= 2; p -= 2, one += o.single_step, many += o.vector_step) pixels(~uint32_t(0));
      if (p > 0) pixels(0xffffu);  // the last pixel has no other beside it
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < Singles; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) store_f(kept + i * ld + v * lanes, accum[i][v]);
}

}  // namespace tw
