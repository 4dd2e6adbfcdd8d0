// The natural logarithm of a positive float, in double by a series: better than fp32 holds.
#pragma once
#include <tilewright/cpu/primitives/types.h>

namespace tw {

// x = m 2^e with m in [sqrt(1/2), sqrt(2)): ln x = e ln 2 + 2 atanh((m - 1) / (m + 1)).
inline double logarithm(float x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
  if (x > 0x1.fffffep127f) return x;
  int exponent = 0;
  if (x < 0x1p-126f) x *= 0x1p24f, exponent = -24;
  uint32_t bits = as_bits(x);
  exponent += int(bits >> 23) - 127;
  double m = double(as_float((bits & 0x7fffffu) | 0x3f800000u));
  if (m > 1.4142135623730951) m *= 0.5, ++exponent;
  const double z = (m - 1) / (m + 1), s = z * z;
  double sum = 0;
  for (int k = 17; k > 0; k -= 2) sum = sum * s + 1.0 / k;
  return double(exponent) * 0.69314718055994530942 + 2 * z * sum;
}

}  // namespace tw
