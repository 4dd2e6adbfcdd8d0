// Attention's gradients by plain loops, on NVIDIA GPUs.
#pragma once
#include <tilewright/cuda/attention_backward/entries.h>
#include <tilewright/gpu/attention_backward_loops.h>

#ifdef TW_ON_GPU
#define TW_LOOPS_FUNCTION(Config, Name, Body) \
  extern "C" __global__ void __launch_bounds__(tw::BackwardLoops::threads, 1) \
      Name(const __grid_constant__ tw::BackwardLoopsArgs x) { \
    const tw::BackwardLooper<Config> looper(x); \
    Body \
  }
#define TW_DEVICE_ATTENTION_BACKWARD_LOOPS(Config, Symbol) \
  TW_LOOPS_FUNCTION(Config, Symbol, if (tw::backward_team() < x.keys) looper.key(tw::backward_team());) \
  TW_LOOPS_FUNCTION(Config, Symbol##_dq, if (tw::backward_team() < x.rows) looper.row(tw::backward_team());) \
  TW_LOOPS_FUNCTION(Config, Symbol##_dbias, if (tw::backward_team() < x.entries()) looper.bias(tw::backward_team());) \
  TW_LOOPS_FUNCTION(Config, Symbol##_dalibi, looper.slope(blockIdx.x, reinterpret_cast<float *>(tw::dynamic_shared()));)
#else
#define TW_DEVICE_ATTENTION_BACKWARD_LOOPS(Config, Symbol)
#endif
