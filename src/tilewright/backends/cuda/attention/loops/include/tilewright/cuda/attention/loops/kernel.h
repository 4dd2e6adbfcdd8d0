// The device's half of the loops.
#pragma once
#include <tilewright/gpu/attention_loops.h>

#ifdef __CUDACC__
#include <tilewright/cuda/primitives/device.h>

#define TW_DEVICE_ATTENTION_LOOPS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionLoopsShape::threads) \
      Symbol(const __grid_constant__ tw::attention_args_of<Config::family>::type x, const long long units) { \
    tw::attention_loops<Config>(x, units, reinterpret_cast<float *>(tw::dynamic_shared())); \
  }
#else
#define TW_DEVICE_ATTENTION_LOOPS(Config, Symbol)
#endif
