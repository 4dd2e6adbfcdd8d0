// The register block of the five products: M rows by Vectors * lanes columns of accumulators, kept in registers while the groups
// of words (dot.h) go by.
#pragma once
#include <tilewright/cpu/primitives/dot.h>

namespace tw {

// out[i * ld + c] (+)= the sum over groups g of a[i * Row + g * Group] times b[g * width + c].  Strides of `a` are known
// to the compiler, so that every row is one pointer and an offset: of words in rows Group is 1, of words in columns Row is.
// What was there is added last: accumulators over thousands of rows are rounded once a tile at their size, not once a row.  With a
// Run each so many groups are added up by themselves (dot.h).
template <class Dot, int M, int Vectors, int Row, int Group, bool Accumulate, int Run>
__attribute__((noinline)) void gradient_block(int64_t groups, const uint32_t *__restrict a,
                                              const uint32_t *__restrict b, float *__restrict out, int64_t ld) {
  constexpr int width = Vectors * lanes;
  bool add = Accumulate;
#pragma GCC unroll 1
  do {
    const int64_t some = Run && groups > Run ? Run : groups;
    vf accum[M][Vectors];
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[i][v] = vf{};
#pragma GCC unroll 1
    for (int64_t g = 0; g < some; ++g, a += Group, b += width) {
      vu columns[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) columns[v] = load_u(b + v * lanes);
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const vu word = splat(a[i * Row]);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) accum[i][v] = Dot::mac(accum[i][v], word, columns[v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        float *to = out + i * ld + v * lanes;
        store_f(to, add ? load_f(to) + accum[i][v] : accum[i][v]);
      }
    groups -= some, add = true;
  } while (Run && groups > 0);
}

// The same for `rows` rows, M at a time, and a block of Rest where M does not divide them; with Rest 0 rows are filled up
// to whole blocks, which the memory of `a` and `out` has room for.
template <class Dot, int M, int Rest, int Vectors, int Row, int Group, bool Accumulate, int Run = 0>
TW_INLINE void gradient_rows(int64_t rows, int64_t groups, const uint32_t *a, const uint32_t *b, float *out,
                             int64_t ld) {
  int64_t i = 0;
  for (; i + (Rest ? M : 1) <= rows; i += M)
    gradient_block<Dot, M, Vectors, Row, Group, Accumulate, Run>(groups, a + i * Row, b, out + i * ld, ld);
  if constexpr (Rest > 0)
    if (i < rows)
      gradient_block<Dot, Rest, Vectors, Row, Group, Accumulate, Run>(groups, a + i * Row, b, out + i * ld, ld);
}

}  // namespace tw
