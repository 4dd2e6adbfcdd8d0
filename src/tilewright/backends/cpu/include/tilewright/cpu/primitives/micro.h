// The register block: MR rows by Vectors * lanes columns of accumulators, kept in registers while k goes by.
#pragma once
#include <tilewright/cpu/primitives/dot.h>

namespace tw {

// out = accumulators, or out = from + accumulators.  `a` is packed rows of words, Stride apart (known to the compiler, so
// that every row is one pointer and an offset); `b` is a packed panel.
// `start` is what the accumulators start from (only for dot products with an offset).
// Where To is no word, results are rounded to it.  Of the last vector's columns some may not exist.
template <class Dot, int MR, int Stride, int Vectors, int Unroll, int Prefetch, bool Accumulate, class To = uint32_t>
__attribute__((noinline)) void register_block(int64_t groups, const uint32_t *__restrict a,
                                              const uint32_t *__restrict b, [[maybe_unused]] const int32_t *start,
                                              [[maybe_unused]] const uint32_t *from, [[maybe_unused]] int64_t ld_from,
                                              To *out, int64_t ld_out, int64_t columns_out = Vectors * lanes) {
  constexpr int width = Vectors * lanes;
  using Sum = typename Dot::Sum;
  Sum accum[MR][Vectors];
  // The results' lines are far away; prefetch them now, they are needed when k has gone by.
#pragma GCC unroll 32
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      __builtin_prefetch(out + i * ld_out + v * lanes, 1, 3);
      if constexpr (Accumulate) __builtin_prefetch(from + i * ld_from + v * lanes, 0, 3);
    }
#pragma GCC unroll 32
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      if constexpr (Dot::offset) accum[i][v] = Sum(load_u(start + v * lanes));
      else accum[i][v] = Dot::zero();
    }
  auto step = [&](int64_t g) {
    vu columns[Vectors];
    if constexpr (Prefetch > 0)
      for (int v = 0; v < Vectors; ++v) __builtin_prefetch(b + (g + Prefetch) * width + v * lanes, 0, 3);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) columns[v] = load_u(b + g * width + v * lanes);
#pragma GCC unroll 32
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[i][v] = Dot::mac(accum[i][v], splat(a[i * Stride + g]), columns[v]);
  };
  int64_t g = 0;
  for (; g + Unroll <= groups; g += Unroll) {
#pragma GCC unroll 8
    for (int u = 0; u < Unroll; ++u) step(g + u);
  }
  if constexpr (Unroll > 1)
    for (; g < groups; ++g) step(g);
#pragma GCC unroll 32
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      To *to = out + i * ld_out + v * lanes;
      vu sums = vu(accum[i][v]);
      if constexpr (Accumulate && same<Sum, vf>::value) sums = vu(load_f(from + i * ld_from + v * lanes) + vf(sums));
      else if constexpr (Accumulate) sums = load_u(from + i * ld_from + v * lanes) + sums;
      put_sums(to, sums, v + 1 < Vectors ? lanes : columns_out - v * lanes);
    }
}

}  // namespace tw
