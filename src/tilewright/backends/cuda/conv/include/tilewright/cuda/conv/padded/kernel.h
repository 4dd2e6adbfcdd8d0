// Convolutions of channels or filters that are no whole 16 bytes, or of memory that is not aligned so, or whose channels do
// not lie side by side: by another pipeline, in copies that are.
// The device's half: what moves the copies, beside the functions of that pipeline.
#pragma once
#include <tilewright/cuda/conv/padded/shape.h>

#ifdef TW_ON_GPU
#define TW_DEVICE_CONV_PADDED(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Padded::threads, tw::Padded::blocks) \
      Symbol##_pad(const __grid_constant__ tw::PadCall x) { \
    tw::pad_channels<Config>(x); \
  }
#else
#define TW_DEVICE_CONV_PADDED(Config, Symbol)
#endif
