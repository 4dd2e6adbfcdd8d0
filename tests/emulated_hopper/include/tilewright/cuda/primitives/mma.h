// Emulated: cuda/primitives/mma.h.
#pragma once
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/types.h>

#include "../../../../ampere.h"

inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

namespace tw {

TW_GPU void load_matrices(uint32_t (&to)[4], const char *row) { emulated::load_matrices(to, row, false); }
TW_GPU void load_matrices_transposed(uint32_t (&to)[4], const char *row) { emulated::load_matrices(to, row, true); }

TW_GPU uint32_t turn_matrix(uint32_t two) {
  const int lane = int(threadIdx.x) % 32, from = lane % 4 * 8 + lane / 8, half = lane / 4 % 2 * 16;
  const uint32_t low = lane_at(two, from), high = lane_at(two, from + 4);
  return (low >> half & 0xffff) | (high >> half & 0xffff) << 16;
}

template <class T> struct emulated_kind;
template <> struct emulated_kind<bf16> {
  static constexpr auto value = emulated::Kind::bf16;
};
template <> struct emulated_kind<fp16> {
  static constexpr auto value = emulated::Kind::fp16;
};
template <> struct emulated_kind<int8> {
  static constexpr auto value = emulated::Kind::int8;
};
template <> struct emulated_kind<tf32> {
  static constexpr auto value = emulated::Kind::tf32;
};
#define TW_MMA_FP8 (TW_EMULATED_ARCH >= 89)
#if TW_MMA_FP8
template <> struct emulated_kind<fp8_e4m3> {
  static constexpr auto value = emulated::Kind::e4m3;
};
template <> struct emulated_kind<fp8_e5m2> {
  static constexpr auto value = emulated::Kind::e5m2;
};
#endif
template <class Sum, class A, class B> TW_GPU void mma(Sum *d, const uint32_t *a, const uint32_t *b, A, B) {
  emulated::mma(d, a, b, emulated_kind<A>::value, emulated_kind<B>::value);
}

TW_GPU uint32_t round_tf32(uint32_t x) { return (x & 0x7f800000) == 0x7f800000 ? x : (x + 0x1000) & 0xffffe000; }
TW_GPU uint32_t times_two_to_120(uint32_t x) {
  uint32_t out = 0;
  for (int i = 0; i < 2; ++i) {
    bf16 y;
    round_to(to_float(bf16{uint16_t(x >> 16 * i)}) * 0x1p120f, y);
    out |= uint32_t(y.bits) << 16 * i;
  }
  return out;
}
TW_GPU uint32_t times_256(uint32_t x) {
  uint32_t out = 0;
  for (int i = 0; i < 2; ++i) {
    fp16 y;
    round_to(to_float(fp16{uint16_t(x >> 16 * i)}) * 256.0f, y);
    out |= uint32_t(y.bits) << 16 * i;
  }
  return out;
}

}  // namespace tw
