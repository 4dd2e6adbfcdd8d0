// The softmax of attention, online.
#pragma once
#include <tilewright/cpu/primitives/exponential.h>
#include <tilewright/cpu/primitives/logarithm.h>
#include <tilewright/cpu/primitives/math.h>

namespace tw {

// The largest lane, and all lanes of it.
TW_INLINE float largest_lane(vf x) {
#pragma GCC unroll 4
  for (int width = lanes / 2; width > 0; width /= 2) {
    vf y;
    for (int i = 0; i < lanes; ++i) y[i] = x[i ^ width];
    x = larger(x, y);
  }
  return x[0];
}

// A maximum that may be subtracted: a row that has seen nothing has minus infinity, which may not.
TW_INLINE vf subtracted(vf top) { return select(vi(top == minus_infinity), vf{}, top); }

// The logarithm of a sum of exponentials over their maximum.
TW_INLINE float lse_of(float top, float sum) {
  return sum == 0.0f ? minus_infinity : float(double(top) + logarithm(sum));
}

}  // namespace tw
