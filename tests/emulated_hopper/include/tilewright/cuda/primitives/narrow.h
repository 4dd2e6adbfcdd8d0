// Emulated: cuda/primitives/narrow.h.
#pragma once
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/types.h>

namespace tw {

TW_GPU uint32_t emulated_e4m3(float x) {
  const uint32_t sign = __float_as_uint(x) >> 31 << 7;
  if (x != x) return 0x7f;
  float size = fabsf(x) > 448.0f ? 448.0f : fabsf(x);
  int exponent = 0;
  frexpf(size, &exponent);
  const float step = ldexpf(1.0f, (exponent < -5 ? -5 : exponent) - 4);  // subnormals have that of the least normal
  size = nearbyintf(size / step) * step;
  if (size < 0x1p-6f) return sign | uint32_t(size * 512.0f);
  return sign | ((__float_as_uint(size) >> 20) - (120u << 3));
}
TW_GPU uint32_t quad(fp8_e4m3, float a, float b, float c, float d) {
  return emulated_e4m3(a) | emulated_e4m3(b) << 8 | emulated_e4m3(c) << 16 | emulated_e4m3(d) << 24;
}
TW_GPU uint32_t widen_two(fp8_e4m3, uint32_t two) {
  fp16 low, high;
  round_to(to_float(fp8_e4m3{uint8_t(two)}), low);
  round_to(to_float(fp8_e4m3{uint8_t(two >> 8)}), high);
  return uint32_t(low.bits) | uint32_t(high.bits) << 16;
}

}  // namespace tw
