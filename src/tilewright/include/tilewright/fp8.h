// Numbers rounded to fp8 e4m3: to the nearest, ties to even; beyond the largest finite one they become that one, infinity
// too, and NaN stays NaN.  The OCP encoding, and AMD's older one (fnuz), whose bias is one more and which has one zero.
#pragma once
#include <tilewright/philox.h>  // TW_BOTH

namespace tw {

template <bool fnuz> TW_BOTH uint8_t to_e4m3(float x) {
  constexpr uint32_t bias = fnuz ? 8 : 7, most = fnuz ? 0x7f : 0x7e, none = fnuz ? 0x80 : 0x7f;
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 24 & 0x80, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return uint8_t(none | sign);
  uint32_t rounded;
  if (rest < (128 - bias) << 23) {
    // Subnormal: their step is the last bit of a number this large, so that adding it rounds at the right bit.
    const uint32_t large_bits = (127 + 23 - 2 - bias) << 23;
    float large, sum;
    __builtin_memcpy(&large, &large_bits, 4);
    __builtin_memcpy(&sum, &rest, 4);
    sum += large;
    __builtin_memcpy(&rounded, &sum, 4);
    rounded -= large_bits;
  } else {
    rounded = (rest + 0x7ffff + (rest >> 20 & 1)) >> 20;
    rounded -= (127 - bias) << 3;
    if (rounded > most) rounded = most;
  }
  return uint8_t(fnuz && !rounded ? 0 : rounded | sign);
}

}  // namespace tw
