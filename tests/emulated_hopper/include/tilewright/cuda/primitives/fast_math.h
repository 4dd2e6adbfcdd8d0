// Emulated: cuda/primitives/fast_math.h.
#pragma once
#include <tilewright/cuda/primitives/device.h>

namespace tw {

TW_GPU float exp2_fast(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

TW_GPU float reciprocal_fast(float x) { return 1.0f / x; }

}  // namespace tw
