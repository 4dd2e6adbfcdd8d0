// Gradients of weights that blocks summed up part by part: the parts of a weight, added in an order that is always the same.
#pragma once
#include <tilewright/cuda/device.h>

#ifdef TW_ON_GPU
namespace tw {

// Eight threads share the parts of a weight, so that few reads come one after another, and the first of them has the sum:
// whether this thread is one, which weight, and the sum.  Shared memory: a float a thread.
constexpr int adders = 8;
template <int Threads>
TW_GPU bool add_parts(const float *partial, long long count, int parts, int &at, float &sum) {
  static_assert(Threads % (32 * adders) == 0, "a warp reads neighbours");
  constexpr int each = Threads / adders;
  float *shares = reinterpret_cast<float *>(dynamic_shared());
  const int who = threadIdx.x / each, mine = threadIdx.x % each;
  at = int(blockIdx.x) * each + mine;
  float mine_of = 0;
  wait_for_kernel_before();
  if (at < count)
#pragma unroll 8
    for (int part = who; part < parts; part += adders) mine_of += partial[part * count + at];
  shares[threadIdx.x] = mine_of;
  __syncthreads();
  if (who || at >= count) return false;
  sum = 0;
#pragma unroll
  for (int i = 0; i < adders; ++i) sum += shares[i * each + mine];
  return true;
}

}  // namespace tw
#endif
