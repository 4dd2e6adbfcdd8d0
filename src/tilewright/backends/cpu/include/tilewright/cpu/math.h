// Vector functions of the epilogues: exp, tanh, sigmoid, erf, to a few units in the last place of fp32.
#pragma once
#include <tilewright/cpu/vec.h>

namespace tw {

TW_INLINE vf vmin(vf a, vf b) { return select(vi(a < b), a, b); }
TW_INLINE vf vmax(vf a, vf b) { return select(vi(a > b), a, b); }
TW_INLINE vf vabs(vf x) { return vf(vu(x) & 0x7fffffffu); }
TW_INLINE vf with_sign(vf magnitude, vf sign) { return vf(vu(magnitude) | (vu(sign) & 0x80000000u)); }

// e^x: x = n ln2 + r, |r| <= ln2/2; e^r by a polynomial, 2^n in two factors so that neither overflows.
TW_INLINE vf vexp(vf x) {
  vf clamped = vmin(vmax(x, splat(-104.0f)), splat(89.0f));
  vf n = (clamped * 1.44269504088896341f + 0x1.8p23f) - 0x1.8p23f;
  vf r = clamped - n * 0.693145751953125f - n * 1.42860682030941723e-6f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  vi k = __builtin_convertvector(n, vi), half = k >> 1;
  vf y = p * vf((half + 127) << 23) * vf((k - half + 127) << 23);
  return select(vi(x == x), y, x);  // NaN stays NaN
}

TW_INLINE vf vsigmoid(vf x) {
  // With the negative magnitude exp never overflows, and small results keep their digits.
  vf e = vexp(vf(vu(x) | 0x80000000u));
  vf y = select(vi(x < 0.0f), e, splat(1.0f)) / (1.0f + e);
  return select(vi(x == x), y, x);
}

TW_INLINE vf vtanh(vf x) {
  vf magnitude = vabs(x);
  vf e = vexp(-2.0f * magnitude);
  vf large = (1.0f - e) / (1.0f + e);
  vf s = x * x;  // below 0.55 the quotient cancels: odd polynomial instead
  vf p = splat(-5.70498872745e-3f);
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  vf small = magnitude + magnitude * s * p;
  vf y = with_sign(select(vi(magnitude < 0.55f), small, large), x);
  return select(vi(x == x), y, x);
}

// 1 - erf(x) for x >= 0, from e^(-x^2) times a polynomial in 1/(1 + x/2) (Numerical fit, |rel| < 2e-7).
TW_INLINE vf verfc_positive(vf x) {
  vf t = 1.0f / (1.0f + 0.5f * x);
  vf p = splat(0.17087277f);
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  return t * vexp(p - x * x);
}

}  // namespace tw
