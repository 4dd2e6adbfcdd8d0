// Vector functions of the epilogues: exp, tanh, sigmoid, the normal tail, to a few units in the last place of fp32.
#pragma once
#include <tilewright/cpu/primitives/vec.h>

namespace tw {

TW_INLINE vf vmin(vf a, vf b) { return select(vi(a < b), a, b); }
TW_INLINE vf vmax(vf a, vf b) { return select(vi(a > b), a, b); }
TW_INLINE vf vabs(vf x) { return vf(vu(x) & 0x7fffffffu); }
TW_INLINE vf with_sign(vf magnitude, vf sign) { return vf(vu(magnitude) | (vu(sign) & 0x80000000u)); }

// 2^n e^r for whole n and |r| <= ln2/2: a polynomial, and 2^n in two factors so that neither overflows.
TW_INLINE vf exp_of_parts(vf n, vf r) {
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  vi k = __builtin_convertvector(n, vi), half = k >> 1;
  return p * vf((half + 127) << 23) * vf((k - half + 127) << 23);
}
TW_INLINE vf nearest_whole(vf x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// e^x: x = n ln2 + r.
TW_INLINE vf vexp(vf x) {
  vf clamped = vmin(vmax(x, splat(-104.0f)), splat(89.0f));
  vf n = nearest_whole(clamped * 1.44269504088896341f);
  vf r = clamped - n * 0.693145751953125f - n * 1.42860682030941723e-6f;
  return select(vi(x == x), exp_of_parts(n, r), x);  // NaN stays NaN
}

TW_INLINE vf vsigmoid(vf x) {
  // With the negative magnitude exp never overflows, and small results keep their digits.
  vf e = vexp(vf(vu(x) | 0x80000000u));
  vf y = select(vi(x < 0.0f), e, splat(1.0f)) / (1.0f + e);
  return select(vi(x == x), y, x);
}

TW_INLINE vf vtanh(vf x, vf e) {  // e is e^(-2 |x|)
  vf large = (1.0f - e) / (1.0f + e);
  vf magnitude = vabs(x), s = x * x;  // below 0.55 the quotient cancels: odd polynomial instead
  vf p = splat(-5.70498872745e-3f);
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  vf small = magnitude + magnitude * s * p;
  vf y = with_sign(select(vi(magnitude < 0.55f), small, large), x);
  return select(vi(x == x), y, x);
}
TW_INLINE vf vtanh(vf x) { return vtanh(x, vexp(-2.0f * vabs(x))); }

// tanh and its derivative.  1 - tanh^2 has no digits left where tanh is nearly 1; this is the same and has all of them.
struct TanhAndSlope {
  vf tanh, slope;
};
TW_INLINE TanhAndSlope tanh_and_slope(vf x) {
  const vf e = vexp(-2.0f * vabs(x)), over = 1.0f + e;
  return {vtanh(x, e), 4.0f * e / (over * over)};
}

// The probability that a normal variable is over x >= 0: e^(-x^2/2) times a polynomial in 1 / (1 + 0.35 x)
// (our own fit over [0, 14.5], relative error 3.2e-8; the result is good to 1e-6 as far as floats reach).
// Rounding x^2 would cost digits the larger it is: x is split so that the square of its head is exact.
TW_INLINE vf vnormal_tail(vf x) {
  x = vmin(x, splat(15.0f));
  vf t = 1.0f / (1.0f + 0.35f * x);
  vf p = splat(-0.029157885687287853f);
  p = p * t + 0.14403091907676963f;
  p = p * t - 0.2558390026041371f;
  p = p * t + 0.1593196934632723f;
  p = p * t - 0.023212351790490342f;
  p = p * t + 0.10555250135526259f;
  p = p * t + 0.11982128795413892f;
  p = p * t + 0.1398635154032353f;
  p = p * t + 0.139621306843362f;
  vf head = vf(vu(x) & 0xfffff000u);
  vf large = -0.5f * head * head, small = -0.5f * (x - head) * (x + head);
  vf n = nearest_whole((large + small) * 1.44269504088896341f);
  vf r = (large - n * 0.693145751953125f) + (small - n * 1.42860682030941723e-6f);
  return t * p * exp_of_parts(n, r);
}

}  // namespace tw
