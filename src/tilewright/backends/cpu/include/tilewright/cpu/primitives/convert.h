// Vectors of any element type to float and back, exactly as types.h does one element.
#pragma once
#include <tilewright/cpu/primitives/vec.h>

namespace tw {

// Zero-extending loads and the narrowing store; the compilers' own conversion of such vectors goes
// through halves or, for bytes, through single elements.
#if defined(__AVX2__)
TW_INLINE vu widen_halves(const void *p) {
  vu y;
  asm("vpmovzxwd %1, %0" : "=v"(y) : "m"(*static_cast<const half_lanes_any *>(p)));
  return y;
}
TW_INLINE vu widen_bytes(const void *p) {
  vu y;
  asm("vpmovzxbd %1, %0" : "=v"(y) : "m"(*static_cast<const quarter_lanes_any *>(p)));
  return y;
}
TW_INLINE half_lanes bytes_to_halves(const void *p) {
  half_lanes y;
  asm("vpmovzxbw %1, %0" : "=v"(y) : "m"(*static_cast<const quarter_lanes_any *>(p)));
  return y;
}
#else
TW_INLINE vu widen_halves(const void *p) {
  return __builtin_convertvector(*static_cast<const half_lanes_any *>(p), vu);
}
TW_INLINE vu widen_bytes(const void *p) {
  return __builtin_convertvector(*static_cast<const quarter_lanes_any *>(p), vu);
}
TW_INLINE half_lanes bytes_to_halves(const void *p) {
  return __builtin_convertvector(*static_cast<const quarter_lanes_any *>(p), half_lanes);
}
#endif
TW_INLINE half_lanes narrowed(vu x) {
#if defined(__AVX512F__)
  half_lanes y;
  asm("vpmovdw %1, %0" : "=v"(y) : "v"(x));
  return y;
#else
  return __builtin_convertvector(x, half_lanes);
#endif
}
TW_INLINE void store_narrow(void *p, vu x) { *static_cast<half_lanes_any *>(p) = narrowed(x); }

// The first `count` halves (fewer than lanes); other lanes are 0 and their memory is not touched.
TW_INLINE vu widen_halves(const void *p, int64_t count) {
#if defined(__AVX512F__)
  vu y;
  uint16_t mask = uint16_t((1u << count) - 1);
  asm("vpmovzxwd %1, %0%{%2%}%{z%}" : "=v"(y) : "m"(*static_cast<const half_lanes_any *>(p)), "Yk"(mask));
  return y;
#else
  uint16_t part[lanes] = {};
  __builtin_memcpy(part, p, size_t(count) * 2);
  return widen_halves(part);
#endif
}
TW_INLINE void store_halves(void *p, half_lanes x, int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  uint16_t mask = uint16_t((1u << count) - 1);
  asm("vmovdqu16 %1, %0%{%2%}" : "+m"(*static_cast<half_lanes_any *>(p)) : "v"(x), "Yk"(mask));
#else
  auto *halves = static_cast<char *>(p);
  for (int64_t i = 0; i < lanes - 1 && i < count; ++i) {
    uint16_t one = uint16_t(x[i]);
    __builtin_memcpy(halves + 2 * i, &one, 2);
  }
#endif
}

#if defined(__AVX512F__) || defined(__F16C__)
TW_INLINE vf halves_to_float(half_lanes x) {
  vf y;
  asm("vcvtph2ps %1, %0" : "=v"(y) : "v"(x));
  return y;
}
#else
TW_INLINE vf halves_to_float(half_lanes x) {
  vu bits = __builtin_convertvector(x, vu), sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  vf small = __builtin_convertvector(vi(rest), vf) * 0x1p-24f;
  vu normal = (rest << 13) + (112u << 23), special = 0x7f800000u | (rest & 0x3ffu) << 13;
  vu value = select(vi(rest < 0x400u), vu(small), select(vi(rest >= 0x7c00u), special, normal));
  return vf(sign | value);
}
#endif

TW_INLINE vf load_as_float(const float *p) { return load_f(p); }
TW_INLINE vf load_as_float(const bf16 *p) { return vf(widen_halves(p) << 16); }
TW_INLINE vf load_as_float(const fp16 *p) { return halves_to_float(*reinterpret_cast<const half_lanes_any *>(p)); }
TW_INLINE vf load_as_float(const fp8_e5m2 *p) { return halves_to_float(bytes_to_halves(p) << 8); }
TW_INLINE vf load_as_float(const fp8_e4m3 *p) {
  vu bits = widen_bytes(p);
  vu sign = (bits & 0x80u) << 24, rest = bits & 0x7fu;
  vf small = __builtin_convertvector(vi(rest), vf) * 0x1p-9f;  // no subnormal floats: those are slow
  vu value = select(vi(rest < 8u), vu(small), (rest << 20) + (120u << 23));
  value = select(vi(rest == 0x7fu), splat(0x7fc00000u), value);
  return vf(sign | value);
}
TW_INLINE vf load_as_float(const int32 *p) { return __builtin_convertvector(vi(load_u(p)), vf); }

TW_INLINE half_lanes rounded_to(bf16, vf x) {
  vu bits = vu(x);
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && !defined(TW_EMULATE_BF16)
  uint16_t subnormal;  // which the instruction would flush to 0
  asm("vfpclassps $0x20, %1, %0" : "=Yk"(subnormal) : "v"(x));
  if (__builtin_expect(subnormal == 0, 1)) {
    half_lanes y;
    asm("vcvtneps2bf16 %1, %0" : "=v"(y) : "v"(x));
    return y;
  }
#endif
  vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return narrowed(select(vi(x == x), rounded, (bits >> 16) | 0x40u));
}
TW_INLINE half_lanes rounded_to(fp16, vf x) {
  half_lanes y;
#if defined(__AVX512F__) || defined(__F16C__)
  asm("vcvtps2ph $0, %1, %0" : "=v"(y) : "v"(x));  // 0: to nearest, ties to even
#else
  fp16 part[lanes];
  for (int i = 0; i < lanes; ++i) from_float(x[i], part + i);
  __builtin_memcpy(&y, part, sizeof y);
#endif
  return y;
}
TW_INLINE void store_from_float(float *p, vf x) { store_f(p, x); }
template <class T> TW_INLINE void store_from_float(T *p, vf x) {
  *reinterpret_cast<half_lanes_any *>(p) = rounded_to(T{}, x);
}

// The first `count` elements (at least 1); other lanes are 0 and their memory is not touched.
template <class T> TW_INLINE vf load_as_float(const T *p, int64_t count) {
  if (count >= lanes) return load_as_float(p);
  if constexpr (same<T, float>::value) return vf(load_words(p, count));
  if constexpr (same<T, bf16>::value) return vf(widen_halves(p, count) << 16);
  T part[vector_bytes / sizeof(T)];
  store_u(part, load_bytes(p, count * int64_t(sizeof(T))));
  return load_as_float(static_cast<const T *>(part));
}
template <class T> TW_INLINE void store_from_float(T *p, vf x, int64_t count) {
  if (count >= lanes) {
    store_from_float(p, x);
    return;
  }
  if constexpr (same<T, float>::value) {
    store_words(p, vu(x), count);
  } else {
    store_halves(p, rounded_to(T{}, x), count);
  }
}

// Whether accumulators are rounded to T on their way from registers to the result.  With narrower vectors a block has
// as many of them, but rounding takes more operations: there a loop over a scratch block is shorter.
template <class T> constexpr bool rounds_in_registers = (same<T, bf16>::value || same<T, fp16>::value) && lanes == 16;

// Whether the last columns of a register block are stored as the others are, with a mask.
constexpr bool masks_columns = lanes == 16;

// A vector of accumulators as they are, or rounded, of which `count` exist.
template <class T, class V> TW_INLINE void put_sums(T *to, V sums, int64_t count) {
  if (count <= 0) return;
  if constexpr (same<T, uint32_t>::value) store_words(to, vu(sums), count);
  else store_from_float(to, vf(sums), count);
}

}  // namespace tw
