// Matrix instructions of AMD GPUs behind one interface: MFMA of CDNA (waves of 64 lanes), WMMA of RDNA 3, RDNA 4 and
// gfx1250 (32).
//
// Every instruction here computes 16 x 16 accumulators, and of all of them holds:
//   - A lane holds elements of one line of A (a row) and of one line of B (a column), both of number lane % 16.
//   - The i-th element that a lane holds of A meets the i-th that it holds of B.  Which k an instruction counts them as
//     makes no difference to the sum, so a lane may take any k of its line, the same ones of A and B: here
//     neighbours, as many as LDS hands out at once, and several instructions take them in turn.
//   - A lane's accumulators are of column lane % 16; their rows `row` says.
// RDNA 3 differs in one point: lanes 16 to 31 hold what lanes 0 to 15 hold.
#pragma once
#include <tilewright/gpu/types.h>

#if defined(__HIP_DEVICE_COMPILE__) && (defined(__GFX9__) || defined(__GFX11__) || defined(__GFX12__))
namespace tw::hip {

// One instruction: what a lane holds of either operand (`Lines`) and of the result (`Sums`).
template <class A, class B> struct MatrixAtom;

#define TW_MATRIX_ATOM(A, B, LinesType, SumsType, expression) \
  template <> struct MatrixAtom<A, B> { \
    using Lines = LinesType; \
    using Accumulators = SumsType; \
    static TW_GPU Accumulators multiply(Lines a, Lines b, Accumulators c) { return expression; } \
  };

typedef int MatrixInts2 __attribute__((ext_vector_type(2)));
typedef int MatrixInts4 __attribute__((ext_vector_type(4)));

#if defined(__GFX9__)
constexpr int matrix_wave = 64, matrix_groups = 4;  // groups: lanes that hold parts of the same line
typedef float MatrixFloats __attribute__((ext_vector_type(4)));
using MatrixInts = MatrixInts4;
typedef _Float16 MatrixHalves __attribute__((ext_vector_type(4)));
typedef short MatrixShorts2 __attribute__((ext_vector_type(2)));
typedef short MatrixShorts4 __attribute__((ext_vector_type(4)));
#define TW_MFMA(name) __builtin_amdgcn_mfma_##name(a, b, c, 0, 0, 0)

TW_MATRIX_ATOM(fp32, fp32, float, MatrixFloats, TW_MFMA(f32_16x16x4f32))
#if defined(__gfx950__)
typedef _Float16 MatrixHalves8 __attribute__((ext_vector_type(8)));
typedef __bf16 MatrixBrains8 __attribute__((ext_vector_type(8)));
TW_MATRIX_ATOM(fp16, fp16, MatrixHalves8, MatrixFloats, TW_MFMA(f32_16x16x32_f16))
TW_MATRIX_ATOM(bf16, bf16, MatrixBrains8, MatrixFloats, TW_MFMA(f32_16x16x32_bf16))
TW_MATRIX_ATOM(int8, int8, MatrixInts4, MatrixInts, TW_MFMA(i32_16x16x64_i8))
TW_MATRIX_ATOM(fp8_e4m3, fp8_e4m3, long, MatrixFloats, TW_MFMA(f32_16x16x32_fp8_fp8))
TW_MATRIX_ATOM(fp8_e4m3, fp8_e5m2, long, MatrixFloats, TW_MFMA(f32_16x16x32_fp8_bf8))
TW_MATRIX_ATOM(fp8_e5m2, fp8_e4m3, long, MatrixFloats, TW_MFMA(f32_16x16x32_bf8_fp8))
TW_MATRIX_ATOM(fp8_e5m2, fp8_e5m2, long, MatrixFloats, TW_MFMA(f32_16x16x32_bf8_bf8))
#else
TW_MATRIX_ATOM(fp16, fp16, MatrixHalves, MatrixFloats, TW_MFMA(f32_16x16x16f16))
#if defined(__gfx908__)
TW_MATRIX_ATOM(bf16, bf16, MatrixShorts2, MatrixFloats, TW_MFMA(f32_16x16x8bf16))
#else
TW_MATRIX_ATOM(bf16, bf16, MatrixShorts4, MatrixFloats, TW_MFMA(f32_16x16x16bf16_1k))
#endif
#if defined(__gfx942__)
TW_MATRIX_ATOM(int8, int8, long, MatrixInts, TW_MFMA(i32_16x16x32_i8))
TW_MATRIX_ATOM(fp8_e4m3fnuz, fp8_e4m3fnuz, long, MatrixFloats, TW_MFMA(f32_16x16x32_fp8_fp8))
TW_MATRIX_ATOM(fp8_e4m3fnuz, fp8_e5m2fnuz, long, MatrixFloats, TW_MFMA(f32_16x16x32_fp8_bf8))
TW_MATRIX_ATOM(fp8_e5m2fnuz, fp8_e4m3fnuz, long, MatrixFloats, TW_MFMA(f32_16x16x32_bf8_fp8))
TW_MATRIX_ATOM(fp8_e5m2fnuz, fp8_e5m2fnuz, long, MatrixFloats, TW_MFMA(f32_16x16x32_bf8_bf8))
#else
TW_MATRIX_ATOM(int8, int8, int, MatrixInts, TW_MFMA(i32_16x16x16i8))
#endif
#endif
#undef TW_MFMA

#else
typedef float MatrixFloats __attribute__((ext_vector_type(8)));
typedef int MatrixInts __attribute__((ext_vector_type(8)));
#if defined(__GFX12__)
constexpr int matrix_wave = 32, matrix_groups = 2;
#define TW_WMMA(name) __builtin_amdgcn_wmma_##name##_w32_gfx12
using MatrixBytes = MatrixInts2;
#else
constexpr int matrix_wave = 32, matrix_groups = 1;
#define TW_WMMA(name) __builtin_amdgcn_wmma_##name##_w32
using MatrixBytes = MatrixInts4;
#endif
typedef _Float16 MatrixHalves __attribute__((ext_vector_type(16 / matrix_groups)));
typedef short MatrixShorts __attribute__((ext_vector_type(16 / matrix_groups)));

#if defined(__gfx1250__) || defined(TW_MATRIX_AS_GFX1250)
// A lane holds 32 bytes of a line, twice what RDNA 4 takes, and one instruction is that of two of RDNA 4 on either half.
// TW_MATRIX_AS_GFX1250: written as these two, so that kernels for gfx1250 can be executed where only RDNA 4 can (tests).
typedef int MatrixInts8 __attribute__((ext_vector_type(8)));
typedef _Float16 MatrixHalves16 __attribute__((ext_vector_type(16)));
typedef __bf16 MatrixBrains16 __attribute__((ext_vector_type(16)));
typedef float MatrixFloats2 __attribute__((ext_vector_type(2)));
#if defined(__gfx1250__)
#define TW_WMMA_FLOATS(name) __builtin_amdgcn_wmma_##name(0, a, 0, b, (short)0, c, false, false)
#define TW_WMMA_FP8(name) __builtin_amdgcn_wmma_##name(a, b, (short)0, c, false, false)
TW_MATRIX_ATOM(fp32, fp32, MatrixFloats2, MatrixFloats, TW_WMMA_FLOATS(f32_16x16x4_f32))
TW_MATRIX_ATOM(fp16, fp16, MatrixHalves16, MatrixFloats, TW_WMMA_FLOATS(f32_16x16x32_f16))
TW_MATRIX_ATOM(bf16, bf16, MatrixBrains16, MatrixFloats, TW_WMMA_FLOATS(f32_16x16x32_bf16))
TW_MATRIX_ATOM(int8, int8, MatrixInts8, MatrixInts,
               __builtin_amdgcn_wmma_i32_16x16x64_iu8(true, a, true, b, c, false, false))
TW_MATRIX_ATOM(fp8_e4m3, fp8_e4m3, MatrixInts8, MatrixFloats, TW_WMMA_FP8(f32_16x16x64_fp8_fp8))
TW_MATRIX_ATOM(fp8_e4m3, fp8_e5m2, MatrixInts8, MatrixFloats, TW_WMMA_FP8(f32_16x16x64_fp8_bf8))
TW_MATRIX_ATOM(fp8_e5m2, fp8_e4m3, MatrixInts8, MatrixFloats, TW_WMMA_FP8(f32_16x16x64_bf8_fp8))
TW_MATRIX_ATOM(fp8_e5m2, fp8_e5m2, MatrixInts8, MatrixFloats, TW_WMMA_FP8(f32_16x16x64_bf8_bf8))
#undef TW_WMMA_FLOATS
#undef TW_WMMA_FP8
#else
// A line of 32 bytes as parts of `Part`, which an instruction of RDNA 4 takes each.
template <class Part, class Whole> struct MatrixParts {
  Part part[sizeof(Whole) / sizeof(Part)];
};
#define TW_MATRIX_IN_PARTS(A, B, LinesType, PartType, SumsType, expression) \
  template <> struct MatrixAtom<A, B> { \
    using Lines = LinesType; \
    using Accumulators = SumsType; \
    static TW_GPU Accumulators multiply(Lines x, Lines y, Accumulators c) { \
      using Parts = MatrixParts<PartType, Lines>; \
      const auto of_x = __builtin_bit_cast(Parts, x), of_y = __builtin_bit_cast(Parts, y); \
      for (int i = 0; i < int(sizeof(Lines) / sizeof(PartType)); ++i) { \
        const PartType a = of_x.part[i], b = of_y.part[i]; \
        c = expression; \
      } \
      return c; \
    } \
  };
TW_MATRIX_IN_PARTS(fp16, fp16, MatrixHalves16, MatrixHalves, MatrixFloats, TW_WMMA(f32_16x16x16_f16)(a, b, c))
TW_MATRIX_IN_PARTS(bf16, bf16, MatrixBrains16, MatrixShorts, MatrixFloats, TW_WMMA(f32_16x16x16_bf16)(a, b, c))
TW_MATRIX_IN_PARTS(int8, int8, MatrixInts8, MatrixBytes, MatrixInts,
                   TW_WMMA(i32_16x16x16_iu8)(true, a, true, b, c, false))
TW_MATRIX_IN_PARTS(fp8_e4m3, fp8_e4m3, MatrixInts8, MatrixBytes, MatrixFloats, TW_WMMA(f32_16x16x16_fp8_fp8)(a, b, c))
#undef TW_MATRIX_IN_PARTS
#endif
#else
TW_MATRIX_ATOM(fp16, fp16, MatrixHalves, MatrixFloats, TW_WMMA(f32_16x16x16_f16)(a, b, c))
TW_MATRIX_ATOM(bf16, bf16, MatrixShorts, MatrixFloats, TW_WMMA(f32_16x16x16_bf16)(a, b, c))
TW_MATRIX_ATOM(int8, int8, MatrixBytes, MatrixInts, TW_WMMA(i32_16x16x16_iu8)(true, a, true, b, c, false))
#if defined(__GFX12__)
TW_MATRIX_ATOM(fp8_e4m3, fp8_e4m3, MatrixBytes, MatrixFloats, TW_WMMA(f32_16x16x16_fp8_fp8)(a, b, c))
TW_MATRIX_ATOM(fp8_e4m3, fp8_e5m2, MatrixBytes, MatrixFloats, TW_WMMA(f32_16x16x16_fp8_bf8)(a, b, c))
TW_MATRIX_ATOM(fp8_e5m2, fp8_e4m3, MatrixBytes, MatrixFloats, TW_WMMA(f32_16x16x16_bf8_fp8)(a, b, c))
TW_MATRIX_ATOM(fp8_e5m2, fp8_e5m2, MatrixBytes, MatrixFloats, TW_WMMA(f32_16x16x16_bf8_bf8)(a, b, c))
#endif
#endif
#undef TW_WMMA
#endif
#undef TW_MATRIX_ATOM

// As many instructions as a lane's 16 bytes are enough for, or fewer where lines are only `deep` long.
template <class A, class B, int deep> struct Matrix {
  using Atom = MatrixAtom<A, B>;
  using Accumulators = typename Atom::Accumulators;
  static_assert(sizeof(A) == sizeof(B), "an instruction holds as many elements of A as of B");
  static constexpr int side = 16, wave = matrix_wave, accum = int(sizeof(Accumulators) / 4),
                       atom = int(sizeof(typename Atom::Lines));
  static constexpr int bytes_for(int most) {
    return most <= atom || matrix_groups * most / int(sizeof(A)) <= deep ? (most < atom ? atom : most)
                                                                         : bytes_for(most / 2);
  }
  static constexpr int bytes = matrix_groups == 1 ? atom : bytes_for(16), held = bytes / int(sizeof(A));
  static constexpr int k = matrix_groups * held;  // of one k-block
  static_assert(deep % k == 0, "lines are not whole steps");

  struct Lines {
    typename Atom::Lines v[bytes / atom];
  };
  static TW_GPU void multiply(const Lines &a, const Lines &b, Accumulators &sum) {
#pragma unroll
    for (int i = 0; i < bytes / atom; ++i) sum = Atom::multiply(a.v[i], b.v[i], sum);
  }
  // Of a lane: its line, the first k of a k-block that it holds, and where its i-th sum is.
  static TW_GPU int line(int lane) { return lane % side; }
  static TW_GPU int first(int lane) { return lane / side % matrix_groups * held; }
  static TW_GPU int row(int lane, int i) { return matrix_groups == 1 ? i * 2 + lane / side : lane / side * accum + i; }
  static TW_GPU int column(int lane) { return lane % side; }
};

}  // namespace tw::hip
#endif
