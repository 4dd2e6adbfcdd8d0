// Exponentials of numbers up to 0: weights of a softmax.
//
// Scores stay natural.  In powers of two a score, and again the logarithm of its row's sum, would be rounded once more at
// their size: of scores near 80 that is an error of 4e-6 in a weight of 1, which has none where both are subtracted as
// they are.
#pragma once
#include <tilewright/cpu/primitives/math.h>

namespace tw {

constexpr float log2_e = 1.44269504088896341f;
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

// e^x for x <= 0, 0 from -87.7 down; NaN stays NaN.  x = n ln 2 + r ln 2; the number added is 1.5 * 2^23 and the bias of
// an exponent: the low bits of the sum are the exponent of 2^n, and where that is 0 so is the factor.  2^r is a polynomial
// of our own fit on [-1/2, 1/2], 1 at 0.  Precise: relative error below 1e-7; else below 3e-7, and 1e-8 |x| with it.
template <bool Precise> TW_INLINE vf vexp_weight(vf x) {
  constexpr float magic = 0x1.8p23f + 127.0f, log2_e_rest = 1.925963033500812e-8f;
  x = larger(splat(-88.0f), x);
  vf shifted = x * log2_e + magic, n = shifted - magic;
  vf r, p;
  if constexpr (fuses) {
    r = x * log2_e - n;  // the product is not rounded
    if constexpr (Precise) r = x * log2_e_rest + r;
  } else r = (x - n * 0.693145751953125f - n * 1.42860682030941723e-6f) * log2_e;  // n times the first is exact
  if constexpr (Precise) {
    p = splat(1.55946770151e-4f);
    p = p * r + 1.34066438475e-3f;
    p = p * r + 9.61769297614e-3f;
    p = p * r + 5.55031055121e-2f;
    p = p * r + 2.40226527829e-1f;
    p = p * r + 6.93147214968e-1f;
  } else {
    p = splat(1.3264726149e-3f);
    p = p * r + 9.6715129912e-3f;
    p = p * r + 5.5507335812e-2f;
    p = p * r + 2.4022242427e-1f;
    p = p * r + 6.9314700365e-1f;
  }
  p = p * r + 1.0f;
  return p * vf(vu(shifted) << 23);
}

}  // namespace tw
