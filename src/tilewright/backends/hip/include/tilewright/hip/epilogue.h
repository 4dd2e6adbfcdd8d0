// What happens to a sum on its way out: the D tensors, then the activation.  One functor for every
// count of D tensors; CK Tile calls it with the stored element, the sum in the output's type, and the Ds.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/core.hpp>
#endif

namespace tw::hip {

enum class Epilogue { PassThrough, MultiDAdd, MultiDMultiply, Relu, Gelu, FastGelu, Silu, Sigmoid, Tanh };

#if defined(__HIP_DEVICE_COMPILE__)
template <Epilogue Kind> CK_TILE_HOST_DEVICE float activate(float x) {
  if constexpr (Kind == Epilogue::Relu) return x < 0.0f ? 0.0f : x;  // NaN passes
  if constexpr (Kind == Epilogue::Sigmoid) return 1.0f / (1.0f + expf(-x));
  if constexpr (Kind == Epilogue::Tanh) return tanhf(x);
  // -inf times a factor that vanishes: the limit is 0.
  if constexpr (Kind == Epilogue::Silu) return x == -INFINITY ? 0.0f : x / (1.0f + expf(-x));
  if constexpr (Kind == Epilogue::Gelu) return x == -INFINITY ? 0.0f : 0.5f * x * erfcf(-0.70710678118654752f * x);
  if constexpr (Kind == Epilogue::FastGelu) {
    // 0.5 x (1 + tanh(u)) is x * sigmoid(2u).
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return x == -INFINITY ? 0.0f : x / (1.0f + expf(-2.0f * u));
  }
  return x;
}

template <Epilogue Kind> struct Fused {
  template <class E, class C, class... D> CK_TILE_HOST_DEVICE void operator()(E &e, const C &c, const D &...d) const {
    constexpr bool multiplies = Kind == Epilogue::MultiDMultiply;
    if constexpr (Kind == Epilogue::PassThrough) {
      e = c;
    } else if constexpr (std::is_same_v<E, ck_tile::int32_t>) {  // bf16_t is an integer type to C++
      E x = c;
      ((x = multiplies ? x * d : x + d), ...);
      e = Kind == Epilogue::Relu && x < 0 ? 0 : x;
    } else {
      float x = ck_tile::type_convert<float>(c);
      ((x = multiplies ? x * ck_tile::type_convert<float>(d) : x + ck_tile::type_convert<float>(d)), ...);
      e = ck_tile::type_convert<E>(activate<Kind>(x));
    }
  }
};
#endif

}  // namespace tw::hip
