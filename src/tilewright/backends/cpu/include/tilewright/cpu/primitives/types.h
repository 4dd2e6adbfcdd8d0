// Element types and their exact scalar conversions.  No C++ library: compile time is part of the
// product, and kernels must link where no libstdc++ is.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define TW_INLINE inline __attribute__((always_inline))

namespace tw {

using fp32 = float;
using int8 = int8_t;
using int32 = int32_t;
struct fp16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct fp8_e4m3 {
  uint8_t bits;
};  // OCP: no infinity, 0x7f is NaN
struct fp8_e5m2 {
  uint8_t bits;
};

template <class X, class Y> struct same {
  static constexpr bool value = false;
};
template <class X> struct same<X, X> {
  static constexpr bool value = true;
};
template <bool Yes, class X, class Y> struct choose {
  using type = X;
};
template <class X, class Y> struct choose<false, X, Y> {
  using type = Y;
};

template <class T> constexpr bool is_int = same<T, int8>::value || same<T, int32>::value;
// A number the compiler knows, as a value: call(fixed<3>{}) makes one body for each number.
template <int N> struct fixed {
  static constexpr int value = N;
};
template <int Most, class Body> TW_INLINE void with_fixed(int64_t n, const Body &body) {
  if constexpr (Most > 1) {
    if (n < Most) return with_fixed<Most - 1>(n, body);
  }
  body(fixed<Most>{});
}

TW_INLINE int64_t up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }
TW_INLINE int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
TW_INLINE int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

// What products of T are summed in.
template <class T> using accumulator = typename choose<is_int<T>, int32, float>::type;

TW_INLINE float as_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
TW_INLINE uint32_t as_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}

TW_INLINE float to_float(float x) { return x; }
TW_INLINE float to_float(bf16 x) { return as_float(uint32_t(x.bits) << 16); }
TW_INLINE float to_float(fp16 x) {
  uint32_t sign = uint32_t(x.bits & 0x8000u) << 16, rest = uint32_t(x.bits & 0x7fffu);
  if (rest >= 0x7c00u) return as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest < 0x400u) return as_float(sign | as_bits(float(rest) * 0x1p-24f));
  return as_float(sign | ((rest << 13) + (112u << 23)));
}
TW_INLINE float to_float(fp8_e5m2 x) { return to_float(fp16{uint16_t(x.bits << 8)}); }
TW_INLINE float to_float(fp8_e4m3 x) {
  uint32_t sign = uint32_t(x.bits & 0x80u) << 24, rest = x.bits & 0x7fu;
  if (rest == 0x7fu) return as_float(sign | 0x7fc00000u);
  if (rest < 8u) return as_float(sign | as_bits(float(rest) * 0x1p-9f));
  return as_float(sign | ((rest << 20) + (120u << 23)));
}
TW_INLINE float to_float(int8 x) { return float(x); }
TW_INLINE float to_float(int32 x) { return float(x); }

TW_INLINE void from_float(float x, float *out) { *out = x; }
TW_INLINE void from_float(float x, bf16 *out) {
  uint32_t bits = as_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    out->bits = uint16_t(bits >> 16 | 0x40u);
    return;
  }
  out->bits = uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);  // to nearest, ties to even
}
TW_INLINE void from_float(float x, fp16 *out) {
  uint32_t bits = as_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) {
    out->bits = uint16_t(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    return;
  }
  if (rest >= 0x477ff000u) {
    out->bits = uint16_t(sign | 0x7c00u);
    return;
  }  // rounds past the largest
  if (rest < 0x38800000u) {  // subnormal: adding 0.5 lets the FPU round at the right bit
    uint32_t rounded = as_bits(as_float(rest) + 0.5f) - as_bits(0.5f);
    out->bits = uint16_t(sign | rounded);
    return;
  }
  uint32_t rounded = rest - (112u << 23) + 0xfffu + (rest >> 13 & 1u);
  out->bits = uint16_t(sign | rounded >> 13);
}

// Integer results: to nearest (ties to even), clamped to the type; NaN becomes 0.
TW_INLINE double nearest_even(double x) {
  double magic = x < 0 ? -0x1.8p52 : 0x1.8p52;  // pushes the fraction out of the mantissa
  volatile double moved = x + magic;            // volatile: the sum must really be rounded
  return moved - magic;
}
template <class T> TW_INLINE void from_double(double x, T *out) {
  constexpr double low = same<T, int8>::value ? -128.0 : -2147483648.0;
  constexpr double high = same<T, int8>::value ? 127.0 : 2147483647.0;
  if (!(x == x)) {
    *out = 0;
    return;
  }
  x = x < low ? low : x > high ? high : x;
  *out = T(nearest_even(x));
}
TW_INLINE void from_double(double x, float *out) { *out = float(x); }

}  // namespace tw
