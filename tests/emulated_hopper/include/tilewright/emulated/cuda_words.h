// The words and built-in functions of CUDA that kernels use, for the host's compiler.
#pragma once
#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../../hopper.h"

#define __device__
#define __host__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // right for kernels of one block only; tma_ws asks for dynamic_shared()

struct Index {
  unsigned x, y, z;
};
extern Index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};

template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
inline float __uint_as_float(unsigned x) {
  float y;
  memcpy(&y, &x, 4);
  return y;
}
inline unsigned __float_as_uint(float x) {
  unsigned y;
  memcpy(&y, &x, 4);
  return y;
}
inline float __int_as_float(int x) {
  float y;
  memcpy(&y, &x, 4);
  return y;
}
inline int __float_as_int(float x) {
  int y;
  memcpy(&y, &x, 4);
  return y;
}

inline void __syncthreads() { emulated::named_barrier(0, int(blockDim.x), true); }
inline void __threadfence() { emulated::thread_fence(); }
inline void __syncwarp(unsigned = 0xffffffffu) {
  char mine = 0, theirs;
  emulated::warp_exchange(&mine, 1, 0, &theirs);
}

template <class T> inline T __ldcg(const T *p) {
  T x;
  emulated::load_late(p, &x, sizeof x);
  return x;
}
template <class T> inline void __stcg(T *p, T x) { emulated::store_late(p, &x, sizeof x); }
template <class T> inline T __ldg(const T *p) { return *p; }

// Each lets the others run: a loop around one is a wait.
inline unsigned atomicAdd(unsigned *p, unsigned x) {
  if (x == 0) emulated::spin("atomicAdd of 0");
  else emulated::changed();
  unsigned before = *p;
  *p = before + x;
  return before;
}
inline float atomicAdd(float *p, float x) {
  emulated::changed();
  const float before = *p;
  *p = before + x;
  return before;
}
inline unsigned atomicExch(unsigned *p, unsigned x) {
  emulated::changed();
  unsigned before = *p;
  *p = x;
  return before;
}

// The driver is the emulator.
#define dlsym(from, name) emulated::find(name)
