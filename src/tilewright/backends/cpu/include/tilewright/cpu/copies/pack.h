// Packing: blocks of A and panels of B turned into words (see dot.h), edges filled with zeros, so
// that a register block reads straight lines and never tests whether it is at an edge.
//
// Packed A is row after row of words with a fixed stride.  Packed B is a panel of NR columns, word
// group after word group.  Which way an operand lies in memory only decides whether the words are
// already lined up or a square of them has to be transposed on the way.
#pragma once
#include <tilewright/cpu/primitives/dot.h>

namespace tw {

// Edges go through a copy with zeros around it.  Out of line: they are rare, and inlined in every
// unrolled loop they would cost more compile time than all the rest.
template <class Dot, class T> __attribute__((noinline)) vu words_along_edge(const T *p, int64_t count) {
  if constexpr (same<T, float>::value) return load_words(p, count);
  if constexpr (Dot::step * sizeof(T) == 4) return load_bytes(p, count * int64_t(sizeof(T)));
  static_assert(lanes * Dot::step * sizeof(T) <= vector_bytes, "words of a vector come from one vector");
  T part[vector_bytes / sizeof(T)];
  store_u(part, load_bytes(p, count * int64_t(sizeof(T))));
  return Dot::along_k(static_cast<const T *>(part));
}
template <class Dot, class T>
__attribute__((noinline)) vu words_across_edge(const T *p, int64_t ld, int64_t count, int64_t depth) {
  if constexpr (same<T, float>::value) return load_words(p, count);
  if constexpr (sizeof(T) == 2 && Dot::step == 2) {
    if (count > lanes) count = lanes;
    vu low = count < lanes ? widen_halves(p, count) : widen_halves(p);
    if (depth < 2) return low;
    return low | (count < lanes ? widen_halves(p + ld, count) : widen_halves(p + ld)) << 16;
  }
  T part[Dot::step * lanes +
         vector_bytes / sizeof(T)];  // each row is written as a whole vector, over the next one's place
  int64_t bytes = (count < lanes ? count : lanes) * int64_t(sizeof(T));
  for (int64_t k = 0; k < Dot::step; ++k) store_u(part + k * lanes, k < depth ? load_bytes(p + k * ld, bytes) : vu{});
  return Dot::across(static_cast<const T *>(part), lanes);
}

// lanes words along k starting at p, of which `count` k elements exist.
template <class Dot, class T> TW_INLINE vu words_along(const T *p, int64_t count) {
#if defined(__AVX512BW__)
  if constexpr (Dot::step * sizeof(T) == 4) return load_bytes(p, count * int64_t(sizeof(T)));
#endif
  return count >= lanes * Dot::step ? Dot::along_k(p) : words_along_edge<Dot>(p, count);
}

// One word group for `count` successive rows or columns, of which `depth` k elements exist.
template <class Dot, class T> TW_INLINE vu words_across(const T *p, int64_t ld, int64_t count, int64_t depth) {
  return count >= lanes && depth >= Dot::step ? Dot::across(p, ld) : words_across_edge<Dot>(p, ld, count, depth);
}

// The word of one element, where words hold one.
template <class T> TW_INLINE uint32_t one_word(T x) {
  if constexpr (is_int<T>) return uint32_t(int32_t(x));
  else return as_bits(to_float(x));
}

template <class Dot> TW_INLINE vu bias_a(vu words) {
  if constexpr (Dot::offset) return words ^ 0x80808080u;
  return words;
}

// A square of words whose lines run along k, transposed and stored: out[t * stride] for group t < live.
// Where a dot product needs column totals, the words are added to `totals` on the way.  Out of line,
// once for each type: turning a square is many instructions, and every panel width would have them.
template <class Dot> TW_INLINE void count_in(vi &totals, vu words) {
#if defined(__AVX512VNNI__)
  if constexpr (Dot::offset) asm("vpdpbusd %2, %1, %0" : "+v"(totals) : "v"(splat(0x01010101u)), "v"(words));
#endif
  (void)totals, (void)words;
}
template <class Dot, class T> __attribute__((noinline)) void square_of_lines(const T *p, int64_t ld, int64_t lines,
                                                                             int64_t depth, int64_t live, uint32_t *out,
                                                                             int64_t stride, vi *totals) {
  vu square[lanes];
  if (lines >= lanes && depth >= lanes * Dot::step) {
#pragma GCC unroll 16
    for (int t = 0; t < lanes; ++t) square[t] = Dot::along_k(p + t * ld);
  } else {
    for (int t = 0; t < lanes; ++t) square[t] = t < lines ? words_along<Dot>(p + t * ld, depth) : vu{};
  }
  transpose(square);
  vi sum = *totals;
  for (int64_t t = 0; t < live; ++t) {
    store_u(out + t * stride, square[t]);
    count_in<Dot>(sum, square[t]);
  }
  *totals = sum;
}
// The same for a square whose lines run across k: out[t * stride] for row t < rows, `groups` words each.
template <class Dot, class T> __attribute__((noinline)) void square_of_groups(const T *p, int64_t ld, int64_t rows,
                                                                              int64_t depth, int64_t groups,
                                                                              uint32_t *out, int64_t stride) {
  vu square[lanes];
  if (rows >= lanes && depth >= lanes * Dot::step) {
#pragma GCC unroll 16
    for (int t = 0; t < lanes; ++t) square[t] = Dot::across(p + t * Dot::step * ld, ld);
  } else {
    for (int t = 0; t < lanes; ++t) {
      int64_t k = t * Dot::step;
      square[t] = k < depth ? words_across<Dot>(p + k * ld, ld, rows, depth - k) : vu{};
    }
  }
  transpose(square);
  for (int64_t t = 0; t < rows && t < lanes; ++t) store_words(out + t * stride, bias_a<Dot>(square[t]), groups);
}

// rows x depth elements of A into out[row * stride + group]; rows up to `rows_up` are zeroed.
template <class Dot, bool KContiguous, class T> TW_INLINE void pack_a(const T *a, int64_t ld, int64_t rows,
                                                                      int64_t rows_up, int64_t depth, uint32_t *out,
                                                                      int64_t stride) {
  int64_t groups = (depth + Dot::step - 1) / Dot::step;
  if constexpr (KContiguous) {
    for (int64_t i = 0; i < rows; ++i) {
      const T *from = a + i * ld;
      uint32_t *to = out + i * stride;
      int64_t g = 0;
      for (; (g + lanes) * Dot::step <= depth; g += lanes)
        store_u(to + g, bias_a<Dot>(Dot::along_k(from + g * Dot::step)));
      if (g < groups)
        store_words(to + g, bias_a<Dot>(words_along<Dot>(from + g * Dot::step, depth - g * Dot::step)), groups - g);
    }
  } else if (Dot::step == 1 && rows < lanes / 2) {
    // A few short rows: one element after the other is quicker than squares that are mostly empty.
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t g = 0; g < groups; ++g) out[i * stride + g] = one_word(a[g * ld + i]);
  } else {
    for (int64_t g = 0; g < groups; g += lanes)
      for (int64_t i = 0; i < rows; i += lanes)
        square_of_groups<Dot>(a + g * Dot::step * ld + i, ld, rows - i, depth - g * Dot::step, groups - g,
                              out + i * stride + g, stride);
  }
  for (int64_t i = rows; i < rows_up; ++i) __builtin_memset(out + i * stride, 0, size_t(groups) * 4);
}

// columns x depth elements of B into a panel of Vectors * lanes columns: out[group * NR + column].
// Where the dot product needs it, `totals` receives -128 times each column's sum.
template <class Dot, bool NContiguous, int Vectors, class T>
TW_INLINE void pack_b(const T *b, int64_t ld, int64_t columns, int64_t depth, uint32_t *out, int32_t *totals) {
  constexpr int width = Vectors * lanes;
  int64_t groups = (depth + Dot::step - 1) / Dot::step;
  vi accum[Vectors] = {};
  if constexpr (NContiguous) {
    int64_t g = 0;
    if constexpr (Dot::offset) {  // VNNI's: the only one with strips
      const int64_t live = columns < width ? columns : width;
      for (; (g + 1) * Dot::step <= depth; ++g)
        for (int v = 0; v < Vectors; v += Dot::strip) {
          vu words[Dot::strip];
          Dot::across_strip(b + g * Dot::step * ld + v * lanes, ld, live > v * lanes ? live - v * lanes : 0, words);
#pragma GCC unroll 4
          for (int t = 0; t < Dot::strip; ++t) {
            if (v + t >= Vectors) continue;
            store_u(out + g * width + (v + t) * lanes, words[t]);
            count_in<Dot>(accum[v + t], words[t]);
          }
        }
    } else if (columns >= width) {
      for (; (g + 1) * Dot::step <= depth; ++g) {
        const T *from = b + g * Dot::step * ld;
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) store_u(out + g * width + v * lanes, Dot::across(from + v * lanes, ld));
      }
    }
    for (; g < groups; ++g) {
      int64_t k = g * Dot::step;
      for (int v = 0; v < Vectors; ++v) {
        int64_t left = columns - v * lanes;
        vu words = left > 0 ? words_across<Dot>(b + k * ld + v * lanes, ld, left, depth - k) : vu{};
        store_u(out + g * width + v * lanes, words);
        count_in<Dot>(accum[v], words);
      }
    }
  } else {
    for (int64_t g = 0; g < groups; g += lanes)
      for (int v = 0; v < Vectors; ++v)
        square_of_lines<Dot>(b + v * lanes * ld + g * Dot::step, ld, columns - v * lanes, depth - g * Dot::step,
                             groups - g < lanes ? groups - g : lanes, out + g * width + v * lanes, width, &accum[v]);
  }
  if constexpr (Dot::offset)
    for (int v = 0; v < Vectors; ++v) store_u(totals + v * lanes, vu(accum[v]) * uint32_t(-128));
  (void)totals;
}

}  // namespace tw
