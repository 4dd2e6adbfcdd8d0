// Matrices of elements of 1, 2 or 4 bytes, transposed, square of lanes by square of lanes.
#pragma once
#include <tilewright/cpu/primitives/convert.h>

namespace tw {

// `lanes` elements as the words of a vector, and back.
TW_INLINE vu load_raw(const uint32_t *p) { return load_u(p); }
TW_INLINE vu load_raw(const uint16_t *p) { return widen_halves(p); }
TW_INLINE vu load_raw(const uint8_t *p) { return widen_bytes(p); }
TW_INLINE void store_raw(uint32_t *p, vu x) { store_u(p, x); }
TW_INLINE void store_raw(uint16_t *p, vu x) { store_narrow(p, x); }
TW_INLINE void store_raw(uint8_t *p, vu x) {
#if defined(__AVX512F__)
  asm("vpmovdb %1, %0" : "=m"(*reinterpret_cast<quarter_lanes_any *>(p)) : "v"(x));
#else
  *reinterpret_cast<quarter_lanes_any *>(p) = __builtin_convertvector(x, quarter_lanes);
#endif
}
// The first `count` of them; nothing behind is touched.
template <class T> TW_INLINE vu load_raw(const T *p, int64_t count) {
  if constexpr (sizeof(T) == 4) return load_words(p, count);
  T part[lanes] = {};
  for (int i = 0; i < lanes && i < count; ++i) part[i] = p[i];
  return load_raw(static_cast<const T *>(part));
}
template <class T> TW_INLINE void store_raw(T *p, vu x, int64_t count) {
  if constexpr (sizeof(T) == 4) return store_words(p, x, count);
  T part[lanes];
  store_raw(static_cast<T *>(part), x);
  for (int i = 0; i < lanes && i < count; ++i) p[i] = part[i];
}

// to[column * to_step + row] = from[row * from_step + column].  Whole squares where there are any: the last of a row or
// column begins earlier.  Where lines of the result are shorter than a vector and follow each other, what is written
// behind one belongs to the next, which is written later; where lines that are read follow each other, so it is read.
template <class T> struct Transpose {
  const T *from;
  int64_t from_step, rows, columns;
  T *to;
  int64_t to_step;

  // The square at (row, column).
  __attribute__((noinline)) void square(int64_t row, int64_t column) const {
    int64_t live_rows = least(lanes, rows - row), live_columns = least(lanes, columns - column);
    const T *a = from + row * from_step + column;
    T *b = to + column * to_step + row;
    vu words[lanes];
    if (live_rows == lanes && live_columns == lanes) {
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) words[i] = load_raw(a + i * from_step);
      transpose(words);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) store_raw(b + i * to_step, words[i]);
      return;
    }
    const bool joined = from_step == columns;
    for (int i = 0; i < lanes; ++i, a += from_step) {
      if (i >= live_rows) words[i] = vu{};
      else if (joined && (rows - 1 - row - i) * from_step + columns - column >= lanes) words[i] = load_raw(a);
      else words[i] = load_raw(a, live_columns);
    }
    transpose(words);
    const bool follow = to_step == rows && row == 0;
    for (int i = 0; i < lanes - 1 && i < live_columns; ++i, b += to_step) {
      if (live_rows == lanes || (follow && (columns - 1 - column - i) * to_step + rows >= lanes))
        store_raw(b, words[i]);
      else store_raw(b, words[i], live_rows);
    }
    if (live_columns == lanes) store_raw(b, words[lanes - 1], live_rows);
  }
  static TW_INLINE int64_t begin(int64_t at, int64_t size) { return size < lanes ? at : least(at, size - lanes); }

  // Squares of a band of rows before the next band, or of columns.
  TW_INLINE void by_rows() const {
    for (int64_t row = 0; row < rows; row += lanes)
      for (int64_t column = 0; column < columns; column += lanes) square(begin(row, rows), begin(column, columns));
  }
  TW_INLINE void by_columns() const {
    for (int64_t column = 0; column < columns; column += lanes)
      for (int64_t row = 0; row < rows; row += lanes) square(begin(row, rows), begin(column, columns));
  }
};

}  // namespace tw
