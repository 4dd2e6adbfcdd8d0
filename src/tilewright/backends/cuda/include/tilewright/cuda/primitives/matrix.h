// One unit of a warp's multiplication, and which lane holds what of it: the fragments of A and B as they
// come out of a tile in shared memory, the accumulators as they go out.
//
// Matrix<Config, TileA, TileB>: m, n, k of a unit; a_words, b_words, `sums`: words and accumulators of a lane; `ahead` when
// fragments are worth loading one unit of k before they are used.
#pragma once
#include <tilewright/cuda/copies/copies.h>
#include <tilewright/cuda/primitives/mma.h>
#include <tilewright/gpu/multistage_shape.h>

#ifdef TW_ON_GPU
namespace tw {

// Two fp8 in the low half of a word as two fp16: exact.
TW_GPU uint32_t widen_pair(uint32_t x, fp8_e5m2) { return permute(x, 0, 0x1404); }
TW_GPU uint32_t widen_pair(uint32_t x, fp8_e4m3) {
  // As fp16 bits with the exponent of e4m3, 2^8 too small: scaled, subnormals come out right by themselves.
  const uint32_t low = x & 0x7f, high = x & 0x7f00;
  uint32_t value = times_256(low << 7 | high << 15);
  if (low == 0x7f) value |= 0x7e00;
  if (high == 0x7f00) value |= 0x7e000000;
  return value | (x & 0x80) << 8 | (x & 0x8000) << 16;
}

template <class T> struct is_fp8 {
  static constexpr bool value = false;
};
template <> struct is_fp8<fp8_e4m3> {
  static constexpr bool value = true;
};
template <> struct is_fp8<fp8_e5m2> {
  static constexpr bool value = true;
};

// Tensor cores: 16 x 16 results from two instructions, 32 bytes of k.
template <class Config, class TileA, class TileB> struct TensorMatrix {
  using A = typename Config::A;
  using B = typename Config::B;
  using Sum = typename sum_of<A>::type;
  static constexpr int m = 16, n = 16, k = 32 / sizeof(A), a_words = 4, b_words = 4, accum = 8;
  static constexpr bool tf = sizeof(A) == 4, ahead = !tf, widened = is_fp8<A>::value && !TW_MMA_FP8;

  // a_words: rows 0-7 and 8-15 of the first 16 bytes of k, then of the second; b_words: both halves of k of
  // columns 0-7, then of columns 8-15.
  static TW_GPU void load_a(uint32_t (&to)[a_words], const char *tile, int line, int step) {
    const int lane = thread_index() % 32;
    load<TileA>(to, tile, line + lane % 16, step, lane / 16, line + lane / 8 % 2 * 8, lane % 8 + lane / 16 * 8);
    if constexpr (tf && !TileA::AlongK) gather<TileA>(to, tile, line, step, 8, 0, 0, 4);
    finish(to);
  }
  static TW_GPU void load_b(uint32_t (&to)[b_words], const char *tile, int line, int step) {
    const int lane = thread_index() % 32;
    load<TileB>(to, tile, line + lane % 8 + lane / 16 * 8, step, lane / 8 % 2, line + lane / 16 * 8, lane % 16);
    if constexpr (tf && !TileB::AlongK) gather<TileB>(to, tile, line, step, 0, 4, 8, 0);
    finish(to);
  }
  static TW_GPU void multiply(Sum (&d)[accum], const uint32_t (&a)[a_words], const uint32_t (&b)[b_words]) {
    if constexpr (widened) {
      // The order of k does not matter as long as both operands keep to it: the low halves of all words are
      // one instruction's k, the high halves the next one's.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t wide_a[4], wide_b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          wide_a[i] = widen_pair(a[i] >> 16 * half, A{}), wide_b[i] = widen_pair(b[i] >> 16 * half, B{});
        mma(d, wide_a, wide_b, fp16{}, fp16{});
        mma(d + 4, wide_a, wide_b + 2, fp16{}, fp16{});
      }
    } else {
      mma(d, a, b, A{}, B{});
      mma(d + 4, a, b + 2, A{}, B{});
    }
  }
  // Where in the unit a lane's i-th sum belongs.
  static TW_GPU int row(int i) { return thread_index() % 32 / 4 + i / 2 % 2 * 8; }
  static TW_GPU int column(int i) { return thread_index() % 4 * 2 + i % 2 + i / 4 * 8; }

 private:
  // Along k: this lane's row and which half of the unit's k.  Else: this lane's first line and its k.
  template <class T>
  static TW_GPU void load(uint32_t (&to)[4], const char *tile, int row, int step, int half, int line, int k_row) {
    if constexpr (T::AlongK) load_matrices(to, tile + T::at(row, step * 2 + half));
    else if constexpr (!tf) load_matrices_transposed(to, tile + T::at(step * k + k_row, line / 8));
  }
  // Single elements: the four words are `line_i`, `k_i` apart from each other in their first and second place.
  template <class T> static TW_GPU void gather(uint32_t (&to)[4], const char *tile, int line, int step, int line_1,
                                               int k_1, int line_2, int k_2) {
    const int lane = thread_index() % 32, at = line + lane / 4, depth = step * k + lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i] = load_shared<uint32_t>(
          tile + T::element(at + i % 2 * line_1 + i / 2 * line_2, depth + i % 2 * k_1 + i / 2 * k_2));
  }
  static TW_GPU void finish(uint32_t (&to)[4]) {
    if constexpr (tf)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = round_tf32(to[i]);
  }
};

// Exact fp32, one multiply-add after the other: 16 x 32 results of one k, 4 x 8 lanes with 4 x 4 each.
//
// Neighbouring lanes read the same columns and those two apart the same rows: what shared memory hands to two
// lanes at once counts once.
template <class Config, class TileA, class TileB> struct PlainMatrix {
  using Sum = float;
  static constexpr int m = 16, n = 32, k = 1, a_words = 4, b_words = 4, accum = 16;
  static constexpr bool ahead = true;

  static TW_GPU int lane_row() { return thread_index() % 2 + thread_index() % 32 / 16 * 2; }
  static TW_GPU int lane_column() { return thread_index() / 2 % 8; }
  static TW_GPU void load_a(uint32_t (&to)[a_words], const char *tile, int line, int step) {
    load(to, tile + TileA::at(step, line / 4 + lane_row()));
  }
  static TW_GPU void load_b(uint32_t (&to)[b_words], const char *tile, int line, int step) {
    load(to, tile + TileB::at(step, line / 4 + lane_column()));
  }
  static TW_GPU void multiply(float (&d)[accum], const uint32_t (&a)[a_words], const uint32_t (&b)[b_words]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) d[i * 4 + j] = __fmaf_rn(__uint_as_float(a[i]), __uint_as_float(b[j]), d[i * 4 + j]);
  }
  static TW_GPU int row(int i) { return lane_row() * 4 + i / 4; }
  static TW_GPU int column(int i) { return lane_column() * 4 + i % 4; }

 private:
  static TW_GPU void load(uint32_t (&to)[4], const char *from) {
    const Word16 word = load_shared<Word16>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = word.w[i];
  }
};

template <class A, class Config, class TileA, class TileB> struct matrix_of {
  using type = TensorMatrix<Config, TileA, TileB>;
};
template <class Config, class TileA, class TileB> struct matrix_of<float, Config, TileA, TileB> {
  using type = PlainMatrix<Config, TileA, TileB>;
};
template <class Config, class TileA, class TileB> using Matrix =
    typename matrix_of<typename Config::A, Config, TileA, TileB>::type;

}  // namespace tw
#endif
