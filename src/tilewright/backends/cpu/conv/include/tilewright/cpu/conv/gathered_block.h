// A register block whose rows are read through pointers, tap by tap.
#pragma once
#include <tilewright/cpu/conv/words.h>

namespace tw {

typedef uint32_t word_any __attribute__((aligned(1), may_alias));

// Rows x (Vectors * lanes) accumulators over `taps` times `words` words.  Row i of tap t begins at rows[t * Stride + i] + shift;
// its weights are the panel's tap which[t], or t where `which` is null.
// Where To is no word, results are rounded to it, and only `columns_out` of them exist.
template <class Dot, int Rows, int Stride, int Vectors, bool Accumulate, class To = uint32_t>
__attribute__((noinline)) void gathered_block(int64_t taps, int64_t words, const char *const *rows,
                                              const int32_t *which, int64_t shift, const uint32_t *__restrict weights,
                                              [[maybe_unused]] const int32_t *start,
                                              [[maybe_unused]] const uint32_t *from, To *out, int64_t ld_out,
                                              int64_t columns_out = Vectors * lanes) {
  constexpr int width = Vectors * lanes;
  // A word's broadcast needs its row's pointer, which is loaded too where rows are many: with one vector, for two words.
  constexpr int once = Vectors == 1 ? 2 : 1;
  using Sum = typename Dot::Sum;
  Sum accum[Rows][Vectors];
#pragma GCC unroll 32
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      if constexpr (Accumulate) accum[i][v] = Sum(load_u(from + i * width + v * lanes));
      else if constexpr (Dot::offset) accum[i][v] = Sum(load_u(start + v * lanes));
      else accum[i][v] = Dot::zero();
    }
  for (int64_t t = 0; t < taps; ++t, rows += Stride) {
    const char *at[Rows];
#pragma GCC unroll 32
    for (int i = 0; i < Rows; ++i) at[i] = rows[i] + shift;
    const uint32_t *panel = weights + (which ? which[t] : t) * words * width;
    auto steps = [&](int64_t c, auto number) {
      constexpr int Steps = decltype(number)::value;
      vu columns[Steps][Vectors];
#pragma GCC unroll 4
      for (int u = 0; u < Steps; ++u)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) columns[u][v] = load_u(panel + (u * Vectors + v) * lanes);
      panel += Steps * width;
#pragma GCC unroll 32
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
        for (int u = 0; u < Steps; ++u)
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v)
            accum[i][v] =
                Dot::mac(accum[i][v], splat(*reinterpret_cast<const word_any *>(at[i] + c + 4 * u)), columns[u][v]);
    };
    int64_t c = 0;
    for (; c + 8 <= words * 4; c += 8)
#pragma GCC unroll 2
      for (int u = 0; u < 2; u += once) steps(c + 4 * u, fixed<once>{});
    if (c < words * 4) steps(c, fixed<1>{});
  }
#pragma GCC unroll 32
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      if constexpr (same<To, uint32_t>::value) store_u(out + i * ld_out + v * lanes, vu(accum[i][v]));
      else put_sums(out + i * ld_out + v * lanes, accum[i][v], columns_out - v * lanes);
    }
}

}  // namespace tw
