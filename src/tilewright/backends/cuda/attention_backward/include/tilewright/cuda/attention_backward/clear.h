// Memory set to zero before a kernel adds to it.
#pragma once
#include <stdint.h>
#include <tilewright/gpu/attention_backward_added.h>

namespace tw {

constexpr int backward_clear_threads = 256;

struct BackwardClearArgs {
  void *accum, *turns;
  int64_t accum_words, turns_words;  // of 16 bytes each
  BackwardAddedArgs added;
};

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/device.h>

namespace tw {

TW_GPU void backward_clear_added(const BackwardAddedArgs &x) {
  const int64_t step = int64_t(gridDim.x) * backward_clear_threads;
  const int64_t first = int64_t(blockIdx.x) * backward_clear_threads + threadIdx.x;
  const int64_t (&n)[4] = x.bias_sizes;
  for (int64_t i = first; i < n[0] * n[1] * n[2] * n[3]; i += step) {
    const int64_t key = i % n[3], row = i / n[3] % n[2], z = i / n[3] / n[2];
    x.dbias[z / n[1] * x.bias_strides[0] + z % n[1] * x.bias_strides[1] + row * x.bias_strides[2] +
            key * x.bias_strides[3]] = 0;
  }
  for (int64_t i = first; i < x.alibi_sizes[0] * x.alibi_sizes[1]; i += step)
    x.dalibi[i / x.alibi_sizes[1] * x.alibi_strides[0] + i % x.alibi_sizes[1] * x.alibi_strides[1]] = 0;
}

TW_GPU void backward_clear(const BackwardClearArgs &x) {
  const int64_t step = int64_t(gridDim.x) * backward_clear_threads;
  const int64_t first = int64_t(blockIdx.x) * backward_clear_threads + threadIdx.x;
  for (int64_t i = first; i < x.accum_words; i += step) static_cast<uint4 *>(x.accum)[i] = uint4{0, 0, 0, 0};
  for (int64_t i = first; i < x.turns_words; i += step) static_cast<uint4 *>(x.turns)[i] = uint4{0, 0, 0, 0};
  backward_clear_added(x.added);
}

}  // namespace tw

#define TW_DEVICE_BACKWARD_CLEAR(Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::backward_clear_threads) \
      Symbol##_clear(const __grid_constant__ tw::BackwardClearArgs x) { \
    tw::wait_for_kernel_before(); \
    tw::let_next_kernel_in(); /* not before: who comes in reads operands at once */ \
    tw::backward_clear(x); \
  }
#define TW_DEVICE_BACKWARD_CLEAR_ADDED(Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::backward_clear_threads) \
      Symbol##_clear(const __grid_constant__ tw::BackwardAddedArgs x) { \
    tw::backward_clear_added(x); \
  }
#endif
