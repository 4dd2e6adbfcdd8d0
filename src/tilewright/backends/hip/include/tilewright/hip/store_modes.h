// How accumulators become results and are stored, and the splits of k.  Nothing here depends on CK Tile.
#pragma once
#include <tilewright/gpu/epilogue.h>
#include <tilewright/hip/gemm.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

template <int bytes> struct WordOf;
template <> struct WordOf<1> {
  using type = uint8_t;
};
template <> struct WordOf<2> {
  using type = uint16_t;
};
template <> struct WordOf<4> {
  using type = uint32_t;
};
template <class T> using Word = typename WordOf<sizeof(T)>::type;
template <class T, int width> struct Together {
  typedef Word<T> type __attribute__((ext_vector_type(width)));
};

// How accumulators become results, and how neighbours of a row are stored: whole where they are aligned and all there.
template <class Config> struct StoreMode {
  using Sum = typename Config::Acc;
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr bool exact = is_integer<C>::value;  // integers go through double, floats through float
  static constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
  using Real = std::conditional_t<exact, double, float>;

  template <class T> static TW_GPU Real real(T one) {
    if constexpr (exact) return Real(one);
    else return to_float(one);
  }

  template <int width, class T>
  static TW_GPU void load(Real (&to)[width], const T *from, int64_t step, bool wide, int count) {
    if constexpr (width > 1) {
      if (wide && count == width) {
        const auto all = *reinterpret_cast<const typename Together<T, width>::type *>(from);
#pragma unroll
        for (int j = 0; j < width; ++j) to[j] = real(__builtin_bit_cast(T, Word<T>(all[j])));
        return;
      }
    }
#pragma unroll
    for (int j = 0; j < width; ++j) to[j] = j < count ? real(from[j * step]) : Real(0);
  }

  template <int width> static TW_GPU void combine(Real (&value)[width], const Real (&other)[width]) {
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if constexpr (gated<Config::epilogue>) value[j] = activate<gate_of<Config::epilogue>>(value[j]) * other[j];
      else value[j] = multiplies ? value[j] * other[j] : value[j] + other[j];
    }
  }

  // Activation, one rounding, and away.
  template <int width> static TW_GPU void store(C *to, const Real (&value)[width], bool wide, int count) {
    C result[width];
#pragma unroll
    for (int j = 0; j < width; ++j) round_to(activate<Config::epilogue>(value[j]), result[j]);
    if constexpr (width > 1) {
      if (wide && count == width) {
        typename Together<C, width>::type all;
#pragma unroll
        for (int j = 0; j < width; ++j) all[j] = __builtin_bit_cast(Word<C>, result[j]);
        *reinterpret_cast<typename Together<C, width>::type *>(to) = all;
        return;
      }
    }
#pragma unroll
    for (int j = 0; j < width; ++j)
      if (j < count) to[j] = result[j];
  }
};

// The accumulators of one split of k.  Rows are as long as whole accesses want, so none ends early.  A Launched says where the
// accumulators of a launch are: GEMM's Launch, or that of another op with such a product inside.
template <class Config, class Launched = Launch> struct Part {
  using Sum = typename Config::Acc;
  const Launched &x;
  int64_t part;

  TW_GPU Sum *at(int64_t z, int64_t row, int64_t column) const {
    return static_cast<Sum *>(x.accum) + ((z * x.parts + part) * x.m + row) * x.accum_stride + column;
  }
  template <int width> TW_GPU void operator()(const Sum (&accum)[width], int64_t z, int64_t row, int64_t column) const {
    if (column >= x.accum_stride) return;
    if constexpr (width == 1) {
      *at(z, row, column) = accum[0];
    } else {
      typename Together<Sum, width>::type all;
#pragma unroll
      for (int j = 0; j < width; ++j) all[j] = __builtin_bit_cast(uint32_t, accum[j]);
      *reinterpret_cast<typename Together<Sum, width>::type *>(at(z, row, column)) = all;
    }
  }
};

// Adds the splits of k in their order: pieces of a row side by side, rows below each other, then the batch.
template <class Config, class Launched, class Out> TW_GPU void add_splits(const Launched &x, Out out) {
  using Sum = typename Config::Acc;
  constexpr int width = out_width<Config>, wide = 4;
  const int across = x.finish_across;  // a power of two
  const int64_t column = (int64_t(blockIdx.x) * across + threadIdx.x % across) * width, z = blockIdx.z;
  if (column >= x.n) return;
  const int64_t step = int64_t(gridDim.y) * (finish_threads / across);
  for (int64_t row = int64_t(blockIdx.y) * (finish_threads / across) + threadIdx.x / across; row < x.m; row += step) {
    Sum accum[width] = {};
    for (int part = 0; part < x.parts; ++part) {
      const Sum *from = Part<Config, Launched>{x, part}.at(z, row, column);
#pragma unroll
      for (int j = 0; j < width; j += wide) {
        const auto some = *reinterpret_cast<const typename Together<Sum, wide>::type *>(from + j);
#pragma unroll
        for (int i = 0; i < wide; ++i) accum[j + i] += __builtin_bit_cast(Sum, uint32_t(some[i]));
      }
    }
    out(accum, z, row, column);
  }
}

}  // namespace tw::hip
#endif
