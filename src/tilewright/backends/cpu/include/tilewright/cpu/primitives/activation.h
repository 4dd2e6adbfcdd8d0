// Activations: what may happen to a value on its way out, for kernels of any op.
#pragma once
#include <tilewright/cpu/primitives/math.h>
#include <tilewright/epilogue_kinds.h>

namespace tw {

template <Epilogue Kind> TW_INLINE vf activate(vf x) {
  if constexpr (Kind == Epilogue::Relu) return select(vi(x < 0.0f), vf{}, x);  // NaN passes
  if constexpr (Kind == Epilogue::Sigmoid) return vsigmoid(x);
  if constexpr (Kind == Epilogue::Silu) {
    vf y = x * vsigmoid(x);
    return select(vi(x == -__builtin_inff()), vf{}, y);  // -inf * 0: the limit is 0
  }
  if constexpr (Kind == Epilogue::Tanh) return vtanh(x);
  if constexpr (Kind == Epilogue::Gelu) {
    // x * Phi(x); the tail probability is computed directly so that large negative x keeps its digits.
    vf tail = vnormal_tail(vabs(x));
    vf y = x * select(vi(x < 0.0f), tail, 1.0f - tail);
    y = select(vi(x == -__builtin_inff()), vf{}, y);
    return select(vi(x == x), y, x);
  }
  if constexpr (Kind == Epilogue::FastGelu) {
    // 0.5 x (1 + tanh(u)) is x * sigmoid(2u).
    vf u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    vf y = x * vsigmoid(2.0f * u);
    return select(vi(x == -__builtin_inff()), vf{}, y);
  }
  return x;
}

// The same in double, for integer results: rare, and exact to the last integer.
template <Epilogue Kind> TW_INLINE double activate_one(double x) {
  if constexpr (Kind == Epilogue::Relu) return x < 0 ? 0 : x;
  if constexpr (Kind == Epilogue::Sigmoid) return 1 / (1 + __builtin_exp(-x));
  if constexpr (Kind == Epilogue::Silu) return x / (1 + __builtin_exp(-x));
  if constexpr (Kind == Epilogue::Tanh) return __builtin_tanh(x);
  if constexpr (Kind == Epilogue::Gelu) return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440);
  if constexpr (Kind == Epilogue::FastGelu)
    return 0.5 * x * (1 + __builtin_tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  return x;
}

}  // namespace tw
