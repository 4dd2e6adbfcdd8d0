// The device's half of the loops.
#pragma once
#include <tilewright/gpu/conv_loops.h>

#ifdef __CUDACC__
#define TW_DEVICE_CONV_LOOPS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::ConvLoopsShape::threads) \
      Symbol(const __grid_constant__ tw_conv_args x, const long long elements) { \
    tw::conv_loops<Config>(x, elements); \
  }
#else
#define TW_DEVICE_CONV_LOOPS(Config, Symbol)
#endif
