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
TW_INLINE void store_narrow(void *p, vu x) {
#if defined(__AVX512F__)
  asm("vpmovdw %1, %0" : "=m"(*static_cast<half_lanes_any *>(p)) : "v"(x));
#else
  *static_cast<half_lanes_any *>(p) = __builtin_convertvector(x, half_lanes);
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

TW_INLINE void store_from_float(float *p, vf x) { store_f(p, x); }
TW_INLINE void store_from_float(bf16 *p, vf x) {
  vu bits = vu(x);
  vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  vu value = select(vi(x == x), rounded, (bits >> 16) | 0x40u);
  store_narrow(p, value);
}
TW_INLINE void store_from_float(fp16 *p, vf x) {
#if defined(__AVX512F__) || defined(__F16C__)
  half_lanes y;
  asm("vcvtps2ph $0, %1, %0" : "=v"(y) : "v"(x));  // 0: to nearest, ties to even
  *reinterpret_cast<half_lanes_any *>(p) = y;
#else
  for (int i = 0; i < lanes; ++i) from_float(x[i], p + i);
#endif
}

// The first `count` elements (at least 1); other lanes are 0 and their memory is not touched.
template <class T> TW_INLINE vf load_as_float(const T *p, int64_t count) {
  if (count >= lanes) return load_as_float(p);
  if constexpr (same<T, float>::value) return vf(load_words(p, count));
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
    return;
  }
  T part[lanes];
  store_from_float(static_cast<T *>(part), x);
  for (int i = 0; i < lanes - 1 && i < count; ++i) p[i] = part[i];
}

}  // namespace tw
