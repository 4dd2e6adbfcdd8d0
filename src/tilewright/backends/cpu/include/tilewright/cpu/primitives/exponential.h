// Powers of two of numbers up to 0: weights of a softmax whose scores are scaled by log2 e.
#pragma once
#include <tilewright/cpu/primitives/math.h>

namespace tw {

constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;
constexpr float minus_infinity = -__builtin_inff();

// The larger; where the second is NaN it is the answer, where the first is it is not.
TW_INLINE vf larger(vf a, vf b) {
#if defined(__AVX2__)
  vf y;
  asm("vmaxps %2, %1, %0" : "=v"(y) : "v"(a), "v"(b));
  return y;
#else
  return select(vi(a > b), a, b);
#endif
}

// 2^x for x <= 0, relative error below 2e-7; 0 from -126.5 down, NaN stays NaN.  The polynomial is our own fit on
// [-1/2, 1/2], 1 at 0.  The number added is 1.5 * 2^23 and the bias of an exponent: the low bits of the sum are the
// exponent of 2^n, and where that is 0 so is the factor.
TW_INLINE vf vexp2(vf x) {
  constexpr float magic = 0x1.8p23f + 127.0f;
  x = larger(splat(-127.0f), x);
  vf shifted = x + magic, r = x - (shifted - magic);
  vf p = splat(1.3264726149e-3f);
  p = p * r + 9.6715129912e-3f;
  p = p * r + 5.5507335812e-2f;
  p = p * r + 2.4022242427e-1f;
  p = p * r + 6.9314700365e-1f;
  p = p * r + 1.0f;
  return p * vf(vu(shifted) << 23);
}

}  // namespace tw
