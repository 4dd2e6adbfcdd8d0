// What kernels use of the CUDA runtime's header, for nvcc, which includes a header of that name before every source.
// NVIDIA's own brings the host's API and half of the C++ library: more than a third of the time a kernel takes to
// compile.  Declared here are the compiler's builtins under the names that header gives them, so the code is the same;
// a source that needs more of the header is compiled with NVIDIA's (toolchain.py).
#pragma once

#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <stddef.h>
#include <stdint.h>

#include "crt/host_defines.h"
#include "vector_types.h"
#include "device_launch_parameters.h"

#ifndef INFINITY
#define INFINITY __builtin_huge_valf()
#endif

#define TW_BUILTIN extern "C" __device__ __device_builtin__
#define TW_INLINE static __device__ __forceinline__

TW_BUILTIN void __syncthreads();
TW_BUILTIN void __threadfence();
TW_BUILTIN void __threadfence_block();
TW_BUILTIN void __nvvm_bar_warp_sync(unsigned mask);
TW_BUILTIN int __nvvm_vote_any_sync(unsigned mask, int predicate);
TW_BUILTIN unsigned __nvvm_shfl_idx_sync(unsigned mask, unsigned value, unsigned lane, unsigned clamp);
TW_BUILTIN unsigned __nvvm_shfl_bfly_sync(unsigned mask, unsigned value, unsigned lane, unsigned clamp);

TW_BUILTIN int __float_as_int(float x);
TW_BUILTIN unsigned __float_as_uint(float x);
TW_BUILTIN float __int_as_float(int x);
TW_BUILTIN float __uint_as_float(unsigned x);
TW_BUILTIN unsigned __byte_perm(unsigned x, unsigned y, unsigned selector);
TW_BUILTIN float __fmaf_rn(float x, float y, float z);

TW_BUILTIN int __iAtomicAdd(int *place, int value);
TW_BUILTIN unsigned __uAtomicAdd(unsigned *place, unsigned value);
TW_BUILTIN float __fAtomicAdd(float *place, float value);
TW_BUILTIN int __iAtomicExch(int *place, int value);
TW_BUILTIN unsigned __uAtomicExch(unsigned *place, unsigned value);
TW_BUILTIN size_t __nv_cvta_generic_to_shared_impl(const void *place);

TW_BUILTIN float fabsf(float x);
TW_BUILTIN float fmaxf(float x, float y);
TW_BUILTIN float fminf(float x, float y);
TW_BUILTIN float fmaf(float x, float y, float z);
TW_BUILTIN float rintf(float x);
TW_BUILTIN float exp2f(float x);
TW_BUILTIN float expf(float x);
TW_BUILTIN float log2f(float x);
TW_BUILTIN float logf(float x);
TW_BUILTIN float tanhf(float x);
TW_BUILTIN float erff(float x);
TW_BUILTIN double rint(double x);
TW_BUILTIN int min(int x, int y);
TW_BUILTIN int max(int x, int y);
TW_BUILTIN unsigned umin(unsigned x, unsigned y);
TW_BUILTIN unsigned umax(unsigned x, unsigned y);
TW_BUILTIN long long llmin(long long x, long long y);
TW_BUILTIN long long llmax(long long x, long long y);
TW_BUILTIN unsigned long long ullmin(unsigned long long x, unsigned long long y);
TW_BUILTIN unsigned long long ullmax(unsigned long long x, unsigned long long y);

TW_INLINE float rint(float x) { return rintf(x); }
TW_INLINE float exp2(float x) { return exp2f(x); }
TW_INLINE float exp(float x) { return expf(x); }
TW_INLINE float log2(float x) { return log2f(x); }
TW_INLINE float log(float x) { return logf(x); }
TW_INLINE float tanh(float x) { return tanhf(x); }

TW_INLINE unsigned min(unsigned x, unsigned y) { return umin(x, y); }
TW_INLINE unsigned min(int x, unsigned y) { return umin(unsigned(x), y); }
TW_INLINE unsigned min(unsigned x, int y) { return umin(x, unsigned(y)); }
TW_INLINE long long min(long long x, long long y) { return llmin(x, y); }
TW_INLINE unsigned long long min(unsigned long long x, unsigned long long y) { return ullmin(x, y); }
TW_INLINE long min(long x, long y) { return long(llmin(x, y)); }
TW_INLINE unsigned long min(unsigned long x, unsigned long y) { return static_cast<unsigned long>(ullmin(x, y)); }
TW_INLINE float min(float x, float y) { return fminf(x, y); }
TW_INLINE unsigned max(unsigned x, unsigned y) { return umax(x, y); }
TW_INLINE unsigned max(int x, unsigned y) { return umax(unsigned(x), y); }
TW_INLINE unsigned max(unsigned x, int y) { return umax(x, unsigned(y)); }
TW_INLINE long long max(long long x, long long y) { return llmax(x, y); }
TW_INLINE unsigned long long max(unsigned long long x, unsigned long long y) { return ullmax(x, y); }
TW_INLINE long max(long x, long y) { return long(llmax(x, y)); }
TW_INLINE unsigned long max(unsigned long x, unsigned long y) { return static_cast<unsigned long>(ullmax(x, y)); }
TW_INLINE float max(float x, float y) { return fmaxf(x, y); }

TW_INLINE int atomicAdd(int *place, int value) { return __iAtomicAdd(place, value); }
TW_INLINE unsigned atomicAdd(unsigned *place, unsigned value) { return __uAtomicAdd(place, value); }
TW_INLINE float atomicAdd(float *place, float value) { return __fAtomicAdd(place, value); }
TW_INLINE int atomicExch(int *place, int value) { return __iAtomicExch(place, value); }
TW_INLINE unsigned atomicExch(unsigned *place, unsigned value) { return __uAtomicExch(place, value); }

TW_INLINE size_t __cvta_generic_to_shared(const void *place) { return __nv_cvta_generic_to_shared_impl(place); }
TW_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { __nvvm_bar_warp_sync(mask); }
TW_INLINE int __any_sync(unsigned mask, int predicate) { return __nvvm_vote_any_sync(mask, predicate); }

TW_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  unsigned result;
  asm volatile("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
  return result;
}

TW_INLINE int __shfl_sync(unsigned mask, int value, int lane) {
  return int(__nvvm_shfl_idx_sync(mask, unsigned(value), unsigned(lane), 0x1fu));
}
TW_INLINE unsigned __shfl_sync(unsigned mask, unsigned value, int lane) {
  return __nvvm_shfl_idx_sync(mask, value, unsigned(lane), 0x1fu);
}
TW_INLINE float __shfl_sync(unsigned mask, float value, int lane) {
  return __int_as_float(int(__nvvm_shfl_idx_sync(mask, unsigned(__float_as_int(value)), unsigned(lane), 0x1fu)));
}
TW_INLINE int __shfl_xor_sync(unsigned mask, int value, int bits) {
  return int(__nvvm_shfl_bfly_sync(mask, unsigned(value), unsigned(bits), 0x1fu));
}
TW_INLINE unsigned __shfl_xor_sync(unsigned mask, unsigned value, int bits) {
  return __nvvm_shfl_bfly_sync(mask, value, unsigned(bits), 0x1fu);
}
TW_INLINE float __shfl_xor_sync(unsigned mask, float value, int bits) {
  return __int_as_float(int(__nvvm_shfl_bfly_sync(mask, unsigned(__float_as_int(value)), unsigned(bits), 0x1fu)));
}

// Loads and stores that name a cache: ldg through the read-only one, ldcg and stcg beside the first level.
#define TW_LOAD(name, how, type, suffix, letter, carried) \
  TW_INLINE type name(const type *place) { \
    carried value; \
    asm volatile("ld.global." how "." suffix " %0, [%1];" : letter(value) : "l"(place)); \
    return static_cast<type>(value); \
  }
#define TW_LOAD_2(name, how, type, suffix, letter) \
  TW_INLINE type name(const type *place) { \
    type value; \
    asm volatile("ld.global." how ".v2." suffix " {%0,%1}, [%2];" : letter(value.x), letter(value.y) : "l"(place)); \
    return value; \
  }
#define TW_LOAD_4(name, how, type, suffix, letter) \
  TW_INLINE type name(const type *place) { \
    type value; \
    asm volatile("ld.global." how ".v4." suffix " {%0,%1,%2,%3}, [%4];" \
                 : letter(value.x), letter(value.y), letter(value.z), letter(value.w) \
                 : "l"(place)); \
    return value; \
  }
#define TW_LOADS(name, how) \
  TW_LOAD(name, how, signed char, "s8", "=r", unsigned) \
  TW_LOAD(name, how, unsigned char, "u8", "=r", unsigned) \
  TW_LOAD(name, how, unsigned short, "u16", "=h", unsigned short) \
  TW_LOAD(name, how, int, "s32", "=r", unsigned) \
  TW_LOAD(name, how, unsigned, "u32", "=r", unsigned) \
  TW_LOAD(name, how, long long, "s64", "=l", unsigned long long) \
  TW_LOAD(name, how, float, "f32", "=f", float) \
  TW_LOAD_2(name, how, uint2, "u32", "=r") \
  TW_LOAD_2(name, how, float2, "f32", "=f") \
  TW_LOAD_4(name, how, uint4, "u32", "=r") \
  TW_LOAD_4(name, how, float4, "f32", "=f")
TW_LOADS(__ldg, "nc")
TW_LOADS(__ldcg, "cg")

TW_INLINE void __stcg(int *place, int value) { asm("st.global.cg.s32 [%0], %1;" ::"l"(place), "r"(value) : "memory"); }
TW_INLINE void __stcg(unsigned *place, unsigned value) {
  asm("st.global.cg.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}
TW_INLINE void __stcg(float *place, float value) {
  asm("st.global.cg.f32 [%0], %1;" ::"l"(place), "f"(value) : "memory");
}
TW_INLINE void __stcg(float2 *place, float2 value) {
  asm("st.global.cg.v2.f32 [%0], {%1,%2};" ::"l"(place), "f"(value.x), "f"(value.y) : "memory");
}
TW_INLINE void __stcg(uint2 *place, uint2 value) {
  asm("st.global.cg.v2.u32 [%0], {%1,%2};" ::"l"(place), "r"(value.x), "r"(value.y) : "memory");
}
TW_INLINE void __stcg(float4 *place, float4 value) {
  asm("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(place), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
}
TW_INLINE void __stcg(uint4 *place, uint4 value) {
  asm("st.global.cg.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(place), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
      : "memory");
}

#undef TW_LOAD
#undef TW_LOAD_2
#undef TW_LOAD_4
#undef TW_LOADS
#undef TW_INLINE
#undef TW_BUILTIN
