// Activations: what may happen to a value on its way out, for kernels of any op.
//
// In fp32 by the instructions for 2^x (within 2^-22 of it) and 1/x (2^-23), and a polynomial where these would lose
// digits.  Largest errors over all x, in units of 2^-24 max(1, |x|), of which ops/numerics.py allows 16: Sigmoid 4,
// Tanh 8, Silu 5, FastGelu 5, Gelu 5.  tests/emulated_hopper/test_activations.py evaluates each of them densely.
#pragma once
#include <tilewright/epilogue_kinds.h>
#include <tilewright/gpu/types.h>

namespace tw {

#ifdef TW_ON_GPU

TW_GPU float two_to_the(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
TW_GPU float one_over(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}
// NaN passes.
TW_GPU float at_least(float x, float low) {
#ifdef __CUDA_ARCH__
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
  return y;
#else
  return x < low ? low : x;
#endif
}

// 1 / (1 + e^-x)
TW_GPU float logistic(float x) { return one_over(1.0f + two_to_the(-1.4426950408889634f * x)); }
// Above 1/2 by e^2x, below by an odd polynomial: there the difference of two numbers near 1 would be left.
TW_GPU float tangent(float x) {
  const float s = x * x;
  const float small =
      x * fmaf(fmaf(fmaf(fmaf(0.0171512999f, s, -0.0529942326f), s, 0.133249074f), s, -0.333330750f), s, 1.0f);
  const float large = fmaf(-2.0f, one_over(1.0f + two_to_the(2.8853900817779268f * x)), 1.0f);
  return s < 0.25f ? small : large;
}
// x Phi(x) = max(x, 0) - |x| Phi(-|x|), where Phi(-t) = 2^q(t) with a polynomial q: what is lost of Phi is small wherever
// t Phi(-t) is not.  Beyond 10 nothing is left of it.
TW_GPU float gauss(float x) {
  const float t = fminf(fabsf(x), 10.0f);
  float q = fmaf(3.40457227e-05f, t, -7.71295687e-04f);
  q = fmaf(q, t, 8.06092191e-03f);
  q = fmaf(q, t, -5.33284172e-02f);
  q = fmaf(q, t, -4.58884031e-01f);
  q = fmaf(q, t, -1.15114415f);
  q = fmaf(q, t, -1.00000155f);
  return fmaf(-t, two_to_the(q), at_least(x, 0.0f));
}

template <Epilogue Kind> TW_GPU float activate(float x) {
  // At -inf these would be -inf * 0; the limit is 0.
  constexpr float lowest = -3.4028234e38f;
  if constexpr (Kind == Epilogue::Relu) return at_least(x, 0.0f);
  if constexpr (Kind == Epilogue::Sigmoid) return logistic(x);
  if constexpr (Kind == Epilogue::Tanh) return tangent(x);
  if constexpr (Kind == Epilogue::Silu) return at_least(x, lowest) * logistic(x);
  if constexpr (Kind == Epilogue::Gelu) return gauss(x);
  // 0.5 x (1 + tanh(u)) is x * sigmoid(2u).
  if constexpr (Kind == Epilogue::FastGelu)
    return at_least(x, lowest) * logistic(x * fmaf(0.0713548163f, x * x, 1.5957691216f));
  return x;
}
// For integer results: rare, and exact to the last integer.
template <Epilogue Kind> TW_GPU double activate(double x) {
  if constexpr (Kind == Epilogue::Relu) return x < 0 ? 0 : x;
  if constexpr (Kind == Epilogue::Sigmoid) return 1 / (1 + exp(-x));
  if constexpr (Kind == Epilogue::Silu) return x / (1 + exp(-x));
  if constexpr (Kind == Epilogue::Tanh) return tanh(x);
  if constexpr (Kind == Epilogue::Gelu) return 0.5 * x * erfc(-x * 0.70710678118654752440);
  if constexpr (Kind == Epilogue::FastGelu)
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  return x;
}

#endif
}  // namespace tw
