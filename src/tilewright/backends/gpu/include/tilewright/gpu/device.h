// The thin layer under kernels that are the same for every vendor: what a thread does with its
// neighbours and with memory that other blocks write.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(TW_EMULATED)
#define TW_ON_GPU  // device code is wanted; the host's half of a kernel sees declarations only
#endif

#if defined(TW_EMULATED)
#include <tilewright/emulated/device.h>
#elif defined(TW_ON_GPU)

#ifndef TW_GPU
#define TW_GPU __device__ __forceinline__
#endif
#define TW_SPIN()  // inside a loop that waits for another block

namespace tw {

// The value of the lane whose number differs in these bits (below 32).
TW_GPU float lane_xor(float x, int bits) {
#ifdef __CUDACC__
  return __shfl_xor_sync(0xffffffffu, x, bits);
#else
  return __shfl_xor(x, bits);
#endif
}

// The value of another lane.
TW_GPU uint32_t lane_at(uint32_t x, int lane) {
#ifdef __CUDACC__
  return __shfl_sync(0xffffffffu, x, lane);
#else
  return __shfl(x, lane);
#endif
}

// Past the first-level cache, which does not hear of other blocks' writes.
TW_GPU float4 load_through(const float4 *p) {
#ifdef __CUDACC__
  return __ldcg(p);
#else
  return float4{__builtin_nontemporal_load(&p->x), __builtin_nontemporal_load(&p->y), __builtin_nontemporal_load(&p->z),
                __builtin_nontemporal_load(&p->w)};
#endif
}
// A word that another block writes; what that one wrote before it is there too.
TW_GPU unsigned look_at(unsigned *p) {
#ifdef __CUDACC__
  unsigned x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
#else
  const unsigned x = atomicAdd(p, 0u);
  __threadfence();
#endif
  return x;
}
// The same without an order: what that one wrote is there behind the next `pass_on`.
TW_GPU unsigned glance_at(unsigned *p) {
#ifdef __CUDACC__
  unsigned x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
#else
  return atomicAdd(p, 0u);
#endif
}
// Counts up a word that another block looks at: that one has what this thread wrote or saw before.
TW_GPU void pass_on(unsigned *p) {
#ifdef __CUDACC__
  asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
#else
  __threadfence();
  atomicAdd(p, 1u);
#endif
}
TW_GPU void store_through(float4 *p, float4 x) {
#ifdef __CUDACC__
  __stcg(p, x);
#else
  *p = x;
#endif
}

}  // namespace tw
#endif
