// What the special-function units compute, to about the last bit but one.
#pragma once
#include <tilewright/cuda/primitives/device.h>

namespace tw {

// 2^x; numbers too small for a float are 0.
TW_GPU float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x.
TW_GPU float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tw
