// The multiply-accumulate of each input type at this ISA level.
//
// Everything is packed into 32-bit words: one float, two 16-bit or four 8-bit elements along k.  A
// register block then looks the same for every type: a word of A is broadcast, a vector of words of
// B is loaded, and `mac` adds their products lane by lane.
#pragma once
#include <tilewright/cpu/primitives/convert.h>

namespace tw {

// Scores of a softmax in fp32 are added up in runs of so many elements: a sum of 128 in one go has twice the error, and
// where scores are large that is the error of weights.  The gradients' kernels add as the forward ones do, to the bit:
// of a row's largest score, which lse is nearly, the error is then the same in both.
constexpr int score_run = 16;

// Floats of any width, widened when packed: products and accumulators in fp32.
template <class A, class B> struct DotFloat {
  static constexpr int step = 1;  // k elements in a word
  static constexpr bool offset = false;
  using Sum = vf;
  static TW_INLINE vf zero() { return vf{}; }
  static TW_INLINE vf mac(vf sum, vu a, vu b) { return sum + vf(a) * vf(b); }
  // A vector of words whose lanes are successive k.
  template <class T> static TW_INLINE vu along_k(const T *p) { return vu(load_as_float(p)); }
  // A vector of words whose lanes are successive rows or columns; `rows` k elements apart by ld.
  template <class T> static TW_INLINE vu across(const T *p, int64_t) { return vu(load_as_float(p)); }
};

#if defined(__AVX512BF16__) || defined(TW_EMULATE_BF16)
// Pairs of bf16 multiplied and summed by one instruction.
struct DotBf16 {
  static constexpr int step = 2;
  static constexpr bool offset = false;
  using Sum = vf;
  static TW_INLINE vf zero() { return vf{}; }
  static TW_INLINE vf mac(vf sum, vu a, vu b) {
#if defined(TW_EMULATE_BF16)  // tests on machines without the instruction: same packing, same pairs
    return sum + vf(a << 16) * vf(b << 16) + vf(a & 0xffff0000u) * vf(b & 0xffff0000u);
#else
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
    return sum;
#endif
  }
  template <class T> static TW_INLINE vu along_k(const T *p) { return load_u(p); }
  // A row in each half of a vector, then one shuffle: half the operations of widening both.
  template <class T> static TW_INLINE vu across(const T *p, int64_t ld) {
#if defined(__AVX512BF16__) && !defined(TW_EMULATE_BF16)
    static constexpr uint32_t dealt[lanes] = {
        0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007,
        0x180008, 0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f,
    };
    vu rows, words;
    asm("vmovdqu64 %1, %t0" : "=v"(rows) : "m"(*reinterpret_cast<const half_lanes_any *>(p)));
    asm("vinserti64x4 $1, %1, %0, %0" : "+v"(rows) : "m"(*reinterpret_cast<const half_lanes_any *>(p + ld)));
    asm("vpermw %1, %2, %0" : "=v"(words) : "v"(rows), "v"(load_u(dealt)));
    return words;
#else
    return widen_halves(p) | widen_halves(p + ld) << 16;
#endif
  }
};
#endif

#if defined(__AVX512VNNI__)
// Four bytes multiplied and summed by one instruction that wants A unsigned: A is packed with 128
// added, and each sum starts at -128 times the column's total to take it out again.
struct DotInt8 {
  static constexpr int step = 4;
  static constexpr bool offset = true;
  using Sum = vi;
  static TW_INLINE vi zero() { return vi{}; }
  static TW_INLINE vi mac(vi sum, vu a, vu b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  template <class T> static TW_INLINE vu along_k(const T *p) { return load_u(p); }
  template <class T> static TW_INLINE vu across(const T *p, int64_t ld) {
    return widen_bytes(p) | widen_bytes(p + ld) << 8 | widen_bytes(p + 2 * ld) << 16 | widen_bytes(p + 3 * ld) << 24;
  }
  // The words of four vectors of columns, of which `columns` exist: three shuffles a vector, where `across` has four and
  // six other operations.  Unpacking stays within quarters of a vector, so each row is first dealt out to them, four
  // bytes at a time: the words then come in order.
  static constexpr int strip = 4;
  template <class T> static TW_INLINE void across_strip(const T *p, int64_t ld, int64_t columns, vu (&words)[strip]) {
    const vu dealt = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    vu row[step], low[2], high[2];
#pragma GCC unroll 4
    for (int k = 0; k < step; ++k)
      asm("vpermd %2, %1, %0" : "=v"(row[k]) : "v"(dealt), "v"(load_bytes(p + k * ld, columns)));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      asm("vpunpcklbw %2, %1, %0" : "=v"(low[half]) : "v"(row[2 * half]), "v"(row[2 * half + 1]));
      asm("vpunpckhbw %2, %1, %0" : "=v"(high[half]) : "v"(row[2 * half]), "v"(row[2 * half + 1]));
    }
    asm("vpunpcklwd %2, %1, %0" : "=v"(words[0]) : "v"(low[0]), "v"(low[1]));
    asm("vpunpckhwd %2, %1, %0" : "=v"(words[1]) : "v"(low[0]), "v"(low[1]));
    asm("vpunpcklwd %2, %1, %0" : "=v"(words[2]) : "v"(high[0]), "v"(high[1]));
    asm("vpunpckhwd %2, %1, %0" : "=v"(words[3]) : "v"(high[0]), "v"(high[1]));
  }
};
#elif defined(__AVX2__)
// Bytes widened to 16 bits; pairs multiplied and summed exactly by one instruction.
struct DotInt8 {
  static constexpr int step = 2;
  static constexpr bool offset = false;
  using Sum = vi;
  static TW_INLINE vi zero() { return vi{}; }
  static TW_INLINE vi mac(vi sum, vu a, vu b) {
    // Integer additions may be regrouped: GCC adds two products first, and then has too few registers.
    vi product;
    asm("vpmaddwd %2, %1, %0" : "=v"(product) : "v"(a), "v"(b));
    asm("vpaddd %1, %0, %0" : "+v"(sum) : "v"(product));
    return sum;
  }
  template <class T> static TW_INLINE vu along_k(const T *p) {
    vu y;
    asm("vpmovsxbw %1, %0" : "=v"(y) : "m"(*reinterpret_cast<const half_lanes_any *>(p)));
    return y;
  }
  template <class T> static TW_INLINE vu across(const T *p, int64_t ld) {
    vi low = vi(widen_bytes(p) << 24) >> 24, high = vi(widen_bytes(p + ld) << 24) >> 8;
    return (vu(low) & 0xffffu) | (vu(high) & 0xffff0000u);
  }
};
#else
struct DotInt8 {
  static constexpr int step = 1;
  static constexpr bool offset = false;
  using Sum = vi;
  static TW_INLINE vi zero() { return vi{}; }
  static TW_INLINE vi mac(vi sum, vu a, vu b) { return vi(vu(sum) + a * b); }
  template <class T> static TW_INLINE vu along_k(const T *p) { return vu(vi(widen_bytes(p) << 24) >> 24); }
  template <class T> static TW_INLINE vu across(const T *p, int64_t) { return along_k(p); }
};
#endif

template <class A, class B> struct dot_of {
  using type = DotFloat<A, B>;
};
template <> struct dot_of<int8, int8> {
  using type = DotInt8;
};
#if defined(__AVX512BF16__) || defined(TW_EMULATE_BF16)
template <> struct dot_of<bf16, bf16> {
  using type = DotBf16;
};
#endif
template <class A, class B> using Dot = typename dot_of<A, B>::type;

}  // namespace tw
