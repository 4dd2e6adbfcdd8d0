// Activations: what may happen to a value on its way out, for kernels of any op.
#pragma once
#include <tilewright/gpu/types.h>

namespace tw {

enum class Epilogue { PassThrough, MultiDAdd, MultiDMultiply, Relu, Gelu, FastGelu, Silu, Sigmoid, Tanh };

#ifdef TW_ON_GPU

template <Epilogue Kind> TW_GPU float activate(float x) {
  if constexpr (Kind == Epilogue::Relu) return x < 0.0f ? 0.0f : x;  // NaN passes
  if constexpr (Kind == Epilogue::Sigmoid) return 1.0f / (1.0f + expf(-x));
  if constexpr (Kind == Epilogue::Tanh) return tanhf(x);
  // At -inf these would be inf / inf or inf * 0; the limit is 0.
  if constexpr (Kind == Epilogue::Silu) return x == -INFINITY ? 0.0f : x / (1.0f + expf(-x));
  if constexpr (Kind == Epilogue::Gelu) return x == -INFINITY ? 0.0f : 0.5f * x * erfcf(-0.70710678118654752f * x);
  if constexpr (Kind == Epilogue::FastGelu) {
    // 0.5 x (1 + tanh(u)) is x * sigmoid(2u).
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return x == -INFINITY ? 0.0f : x / (1.0f + expf(-2.0f * u));
  }
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
