// The matrix instructions of a warp, and the loads that spread shared memory over its lanes for them.
// What each lane holds is in the PTX manual and, in code, in matrix.h.  (Emulated on the host for tests.)
#pragma once
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/types.h>

namespace tw {

// Four 8 x 8 matrices of two-byte elements: lanes 8i to 8i + 7 say where the rows of the i-th lie.
TW_GPU void load_matrices(uint32_t (&to)[4], const char *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}
// The same, each transposed.
TW_GPU void load_matrices_transposed(uint32_t (&to)[4], const char *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}

// An 8 x 8 matrix of two-byte elements in the registers of a warp, four lanes a row, transposed.
TW_GPU uint32_t turn_matrix(uint32_t two) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(two));
  return transposed;
}

// d += a b: 16 x 8 accumulators, 32 bytes of k.  The types are those of the elements of A and B.
#define TW_MMA(A, B, Sum, Letter, Name) \
  TW_GPU void mma(Sum *d, const uint32_t *a, const uint32_t *b, A, B) { \
    asm("mma.sync.aligned." Name " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
        : "+" Letter(d[0]), "+" Letter(d[1]), "+" Letter(d[2]), "+" Letter(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
TW_MMA(bf16, bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
TW_MMA(fp16, fp16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
TW_MMA(int8, int8, int32, "r", "m16n8k32.row.col.s32.s8.s8.s32")
TW_MMA(tf32, tf32, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
#if __CUDA_ARCH__ >= 890
#define TW_MMA_FP8 1
TW_MMA(fp8_e4m3, fp8_e4m3, float, "f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
TW_MMA(fp8_e4m3, fp8_e5m2, float, "f", "m16n8k32.row.col.f32.e4m3.e5m2.f32")
TW_MMA(fp8_e5m2, fp8_e4m3, float, "f", "m16n8k32.row.col.f32.e5m2.e4m3.f32")
TW_MMA(fp8_e5m2, fp8_e5m2, float, "f", "m16n8k32.row.col.f32.e5m2.e5m2.f32")
#else
#define TW_MMA_FP8 0
#endif
#undef TW_MMA

// To the nearest of the values the matrix units can read.
TW_GPU uint32_t round_tf32(uint32_t x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
  return y;
}
// Two bf16 times 2^120.
TW_GPU uint32_t times_two_to_120(uint32_t x) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(0x7b807b80u), "r"(0x80008000u));
  return y;
}
// Two fp16 times 2^8.
TW_GPU uint32_t times_256(uint32_t x) {
  uint32_t y;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0x5c005c00u));
  return y;
}

}  // namespace tw
