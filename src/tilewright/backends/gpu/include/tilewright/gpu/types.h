// The element types of GPU kernels, and how each becomes a float and back.  The host sees the types
// only; what a vendor has an instruction for uses it, the rest is done on the bits.
#pragma once
#include <stdint.h>
#include <tilewright/gpu/device.h>

namespace tw {

using fp32 = float;
using int8 = int8_t;
using int32 = int32_t;
struct tf32 {
  float value;
};  // a float of which the matrix units read 19 bits
struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};
struct fp8_e4m3 {
  uint8_t bits;
};  // OCP: no infinity, 0x7f is NaN
struct fp8_e5m2 {
  uint8_t bits;
};
// FNUZ, as older AMD GPUs have it: a bias of one more, 0x80 is the only NaN, no infinity, one zero.
struct fp8_e4m3fnuz {
  uint8_t bits;
};
struct fp8_e5m2fnuz {
  uint8_t bits;
};

template <class T> struct sum_of {
  using type = float;
};
template <> struct sum_of<int8> {
  using type = int32_t;
};

}  // namespace tw

#ifdef TW_ON_GPU

namespace tw {

TW_GPU float to_float(float x) { return x; }
TW_GPU float to_float(tf32 x) { return x.value; }
TW_GPU float to_float(int32_t x) { return float(x); }
TW_GPU float to_float(int8_t x) { return float(x); }
TW_GPU float to_float(bf16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }
TW_GPU float to_float(fp16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  return float(__builtin_bit_cast(_Float16, x.bits));
#endif
}
TW_GPU float to_float(fp8_e5m2 x) { return to_float(fp16{uint16_t(x.bits << 8)}); }
TW_GPU float to_float(fp8_e4m3 x) {
  uint32_t sign = uint32_t(x.bits & 0x80) << 24, rest = x.bits & 0x7f;
  if (rest == 0x7f) return __uint_as_float(sign | 0x7fc00000);
  // As a float with the exponent of e4m3, then scaled: subnormals come out right by themselves.
  return __uint_as_float(sign | rest << 20) * 0x1p120f;
}
// Half of what the same bits are with the OCP bias; the exponents that mean infinity and NaN there are numbers here.
TW_GPU float to_float(fp8_e4m3fnuz x) {
  if (x.bits == 0x80) return __uint_as_float(0x7fc00000);
  return __uint_as_float(uint32_t(x.bits & 0x80) << 24 | uint32_t(x.bits & 0x7f) << 20) * 0x1p119f;
}
TW_GPU float to_float(fp8_e5m2fnuz x) {
  if (x.bits == 0x80) return __uint_as_float(0x7fc00000);
  return __uint_as_float(uint32_t(x.bits & 0x80) << 24 | uint32_t(x.bits & 0x7f) << 21) * 0x1p111f;
}

TW_GPU void round_to(float x, float &y) { y = x; }
TW_GPU void round_to(float x, bf16 &y) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  uint32_t bits = __float_as_uint(x);
  y.bits = x != x ? uint16_t(bits >> 16 | 0x40) : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
TW_GPU void round_to(float x, fp16 &y) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  y.bits = __builtin_bit_cast(uint16_t, _Float16(x));
#endif
}
// To the nearest integer, halves to even, cut to the type's range; NaN becomes 0.
TW_GPU double within(double x, double low, double high) {
  return x != x ? 0 : x < low ? low : x > high ? high : rint(x);
}
TW_GPU void round_to(double x, int32_t &y) { y = int32_t(within(x, -2147483648.0, 2147483647.0)); }
TW_GPU void round_to(double x, int8_t &y) { y = int8_t(within(x, -128, 127)); }

}  // namespace tw
#endif
