// The device's half of convolutions of few channels.
#pragma once
#include <tilewright/cuda/conv/width_folded/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/tma_ws/kernel.h>

namespace tw {

template <class Config> TW_GPU void move_pixels(const FoldArgs &x) {
  const long long at = blockIdx.x * (long long)Folded::threads + threadIdx.x;
  let_next_kernel_in();
  wait_for_kernel_before();
  if (at >= x.count) return;
  if constexpr (Config::variant == ConvVariant::backward_data) unfold_pixels<typename Config::C>(x, int(at));
  else fold_pixels<typename Config::A>(x, int(at));
}
template <class Config> TW_GPU void move_weights(const FoldArgs &x) {
  const long long at = blockIdx.x * (long long)Folded::threads + threadIdx.x;
  let_next_kernel_in();
  wait_for_kernel_before();
  if (at >= x.count) return;
  if constexpr (Config::variant == ConvVariant::forward) fold_weights<typename Config::A>(x, int(at));
  else if constexpr (Config::variant == ConvVariant::backward_data) fold_filters<typename Config::A>(x, int(at));
  else unfold_weights<typename Config::C>(x, int(at));
}

}  // namespace tw

#define TW_DEVICE_CONV_WIDTH_FOLDED(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::ConvWs<tw::FoldedInto<Config>>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::TensorMap e, const __grid_constant__ tw::TensorMap d, \
             const __grid_constant__ tw::ConvWsArgs x) { \
    tw::conv_tma_ws<tw::ConvWs<tw::FoldedInto<Config>>, tw::FoldedInto<Config>>(a, b, e, d, x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::Folded::threads) \
      Symbol##_pixels(const __grid_constant__ tw::FoldArgs x) { \
    tw::move_pixels<Config>(x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::Folded::threads) \
      Symbol##_weights(const __grid_constant__ tw::FoldArgs x) { \
    tw::move_weights<Config>(x); \
  }
#else
#define TW_DEVICE_CONV_WIDTH_FOLDED(Config, Symbol)
#endif
