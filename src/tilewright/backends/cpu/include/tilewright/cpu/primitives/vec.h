// One vector of 32-bit lanes at the widest the ISA level has, in three readings: float, signed,
// unsigned.  Written with the compilers' own vector types: including <immintrin.h> would cost a
// third of a second for every kernel.
#pragma once
#include <tilewright/cpu/primitives/types.h>

namespace tw {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif
constexpr int lanes = vector_bytes / 4;

typedef float vf __attribute__((vector_size(vector_bytes)));
typedef int32_t vi __attribute__((vector_size(vector_bytes)));
typedef uint32_t vu __attribute__((vector_size(vector_bytes)));
// The same in memory: any alignment, any type behind it.
typedef float vf_any __attribute__((vector_size(vector_bytes), aligned(1), may_alias));
typedef int32_t vi_any __attribute__((vector_size(vector_bytes), aligned(1), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(vector_bytes), aligned(1), may_alias));
// As many narrow elements as a vector has lanes.
typedef uint16_t half_lanes __attribute__((vector_size(vector_bytes / 2)));
typedef uint16_t half_lanes_any __attribute__((vector_size(vector_bytes / 2), aligned(1), may_alias));
typedef uint8_t quarter_lanes __attribute__((vector_size(vector_bytes / 4)));
typedef uint8_t quarter_lanes_any __attribute__((vector_size(vector_bytes / 4), aligned(1), may_alias));

TW_INLINE vu splat(uint32_t x) { return vu{} + x; }
TW_INLINE vi splat(int32_t x) { return vi(splat(uint32_t(x))); }
TW_INLINE vf splat(float x) { return vf(splat(as_bits(x))); }  // 0.0f + x would really add: -0.0

TW_INLINE vf load_f(const void *p) { return *static_cast<const vf_any *>(p); }
TW_INLINE vu load_u(const void *p) { return *static_cast<const vu_any *>(p); }
TW_INLINE void store_f(void *p, vf x) { *static_cast<vf_any *>(p) = x; }
TW_INLINE void store_u(void *p, vu x) { *static_cast<vu_any *>(p) = x; }

// A line of a cache written past all caches, which fetch nothing then; `p` is aligned to it.  Who is woken next sees it
// after `streamed`.
#if defined(__AVX512F__)
constexpr bool streams = true;
TW_INLINE void stream_f(void *p, vf x) { asm volatile("vmovntps %1, %0" : "=m"(*static_cast<vf_any *>(p)) : "v"(x)); }
TW_INLINE void streamed() { asm volatile("sfence" ::: "memory"); }
#else
constexpr bool streams = false;  // a vector is half a line or less
TW_INLINE void stream_f(void *p, vf x) { store_f(p, x); }
TW_INLINE void streamed() {}
#endif

// Keep a loaded vector in its register: without this a compiler may fold the load into each use,
// and a load that crosses a cache line (user arrays are rarely aligned to 64) is then paid each time.
TW_INLINE vu held(vu x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
  return x;
}

// Whether a sum and a product in it are one operation, rounded once.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
constexpr bool fuses = true;
#else
constexpr bool fuses = false;
#endif

// A product as it is rounded: without this a compiler may make one operation of it and the sum that follows.
TW_INLINE vf rounded_here(vf x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
  return x;
}
TW_INLINE float rounded_here(float x) {
#if defined(__x86_64__)
  asm("" : "+x"(x));
#endif
  return x;
}

// The first `count` 32-bit words; the other lanes are 0 and their memory is not touched.  Loops name the most lanes
// there can be: GCC 12 does not see it, and warns of the one behind the last.
TW_INLINE vu load_words(const void *p, int64_t count) {
  if (count >= lanes) return load_u(p);
#if defined(__AVX512F__)
  vu x;
  uint16_t mask = uint16_t((1u << count) - 1);
  asm("vmovdqu32 %1, %0%{%2%}%{z%}" : "=v"(x) : "m"(*static_cast<const vu_any *>(p)), "Yk"(mask));
  return x;
#else
  vu x{};
  auto *words = static_cast<const char *>(p);
  for (int64_t i = 0; i < lanes - 1 && i < count; ++i) {
    uint32_t w;
    __builtin_memcpy(&w, words + 4 * i, 4);
    x[i] = w;
  }
  return x;
#endif
}
// The first `bytes` bytes; those behind them are 0 and their memory is not touched.
TW_INLINE vu load_bytes(const void *p, int64_t bytes) {
  if (bytes >= vector_bytes) return load_u(p);
#if defined(__AVX512BW__)
  vu x;
  uint64_t mask = (uint64_t(1) << bytes) - 1;
  asm("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(x) : "m"(*static_cast<const vu_any *>(p)), "Yk"(mask));
  return x;
#else
  unsigned char part[vector_bytes] = {};
  __builtin_memcpy(part, p, size_t(bytes));
  return load_u(part);
#endif
}
TW_INLINE void store_words(void *p, vu x, int64_t count) {
  if (count >= lanes) {
    store_u(p, x);
    return;
  }
#if defined(__AVX512F__)
  uint16_t mask = uint16_t((1u << count) - 1);
  asm("vmovdqu32 %1, %0%{%2%}" : "+m"(*static_cast<vu_any *>(p)) : "v"(x), "Yk"(mask));
#else
  auto *words = static_cast<char *>(p);
  for (int64_t i = 0; i < lanes - 1 && i < count; ++i) {
    uint32_t w = x[i];
    __builtin_memcpy(words + 4 * i, &w, 4);
  }
#endif
}

// Lanes of `yes` where the mask lane is all ones, of `no` where it is 0.
TW_INLINE vu select(vi mask, vu yes, vu no) { return (vu(mask) & yes) | (~vu(mask) & no); }
TW_INLINE vf select(vi mask, vf yes, vf no) { return vf(select(mask, vu(yes), vu(no))); }

// All lanes in one, halves onto halves: a fixed order.
template <class V> TW_INLINE V fold_lanes(V x) {
#pragma GCC unroll 4
  for (int width = lanes / 2; width > 0; width /= 2) {
    V y;
    for (int i = 0; i < lanes; ++i) y[i] = x[i ^ width];
    x = x + y;
  }
  return x;
}
TW_INLINE float sum_lanes(vf x) { return fold_lanes(x)[0]; }
TW_INLINE int32_t sum_lanes(vi x) { return int32_t(fold_lanes(vu(x))[0]); }

// Turn a square of lanes x lanes words around its diagonal.
template <int Distance> TW_INLINE void transpose_step(vu (&rows)[lanes]) {
  if constexpr (Distance < lanes) {
    vu low, high;
    for (int j = 0; j < lanes; ++j) {
      low[j] = uint32_t((j & Distance) ? j - Distance + lanes : j);
      high[j] = uint32_t((j & Distance) ? j + lanes : j + Distance);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
      if (i & Distance) continue;
      vu x = rows[i], y = rows[i | Distance];
#if defined(__clang__)
      vu a, b;
      for (int j = 0; j < lanes; ++j) {
        a[j] = (j & Distance) ? y[j - Distance] : x[j];
        b[j] = (j & Distance) ? y[j] : x[j + Distance];
      }
      rows[i] = a;
      rows[i | Distance] = b;
#else
      rows[i] = __builtin_shuffle(x, y, low);
      rows[i | Distance] = __builtin_shuffle(x, y, high);
#endif
    }
    transpose_step<Distance * 2>(rows);
  }
}
TW_INLINE void transpose(vu (&rows)[lanes]) { transpose_step<1>(rows); }

}  // namespace tw
