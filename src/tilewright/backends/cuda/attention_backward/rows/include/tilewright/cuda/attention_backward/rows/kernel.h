// The stages before and behind attention's gradients, on NVIDIA GPUs.
#pragma once
#include <tilewright/cuda/attention_backward/entries.h>
#include <tilewright/gpu/attention_backward_rows.h>

// `grad` reads operands as soon as it is let in: nobody is let in before the kernel before is done.
#ifdef TW_ON_GPU
#define TW_DEVICE_ATTENTION_BACKWARD_DOT(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::BackwardRows<Config>::threads, 4) \
      Symbol(const __grid_constant__ tw::BackwardDotArgs x) { \
    if constexpr (Config::early) tw::wait_for_kernel_before(), tw::let_next_kernel_in(); \
    tw::backward_dot<Config>(x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::BackwardRows<Config>::threads) \
      Symbol##_dsink(const __grid_constant__ tw::BackwardDotArgs x) { \
    if constexpr (Config::early) tw::wait_for_kernel_before(), tw::let_next_kernel_in(); \
    if constexpr (Config::dsink) tw::backward_dsink<Config>(x, reinterpret_cast<float *>(tw::dynamic_shared())); \
  }
#define TW_DEVICE_ATTENTION_BACKWARD_CONVERT(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::BackwardRows<Config>::threads, 3) \
      Symbol(const __grid_constant__ tw::BackwardConvertArgs x) { \
    if constexpr (Config::early) tw::wait_for_kernel_before(), tw::let_next_kernel_in(); \
    tw::backward_convert<Config>(x); \
  }
#else
#define TW_DEVICE_ATTENTION_BACKWARD_DOT(Config, Symbol)
#define TW_DEVICE_ATTENTION_BACKWARD_CONVERT(Config, Symbol)
#endif
