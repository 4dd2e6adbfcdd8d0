// Floats as elements of one byte, four at a time.  (Emulated on the host for tests.)
#pragma once
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/types.h>

namespace tw {

// To the nearest e4m3, what is too large to the largest; the first in the lowest byte.
TW_GPU uint32_t quad(fp8_e4m3, float a, float b, float c, float d) {
  uint32_t w;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; "
      "mov.b32 %0, {low, high}; }"
      : "=r"(w)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return w;
}

// Two e4m3, in the low half of a word, as two fp16.
TW_GPU uint32_t widen_two(fp8_e4m3, uint32_t two) {
  uint32_t w;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(w) : "h"(uint16_t(two)));
  return w;
}

}  // namespace tw
