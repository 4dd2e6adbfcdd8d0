// Warpgroup matrix multiply: 64 x N accumulators in registers, operands in shared memory.
//
// The operand list of each N is a macro of wgmma_operands.h.
#pragma once
#include <tilewright/cuda/primitives/operand.h>
#include <tilewright/cuda/primitives/wgmma_operands.h>
#include <tilewright/gpu/types.h>

namespace tw {

TW_GPU void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TW_GPU void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left> TW_GPU void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}
// The compiler may not move uses of the accumulators across the wait.
template <int Count> TW_GPU void hold(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int Count> TW_GPU void hold(int32_t (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// Accumulators += A.B, or = A.B where `add` is 0; one instruction eats 32 bytes of k.  MajorA and MajorB: 0
// where k is contiguous, 1 where m or n is (16-bit elements only).  Accumulators of int8 are int32.
template <int N, class T, int MajorA, int MajorB> struct Wgmma;

// Templates all of them, so that a compiler reads the operands of those that a kernel uses and of no other: to read all
// took a tenth of the time of a kernel.  To skip them takes a twentieth: a generated file that knows its widths says so
// by TW_WGMMA_USES.  MajorsAt are the numbers of the last two operands, MajorA and MajorB.
#ifndef TW_WGMMA_USES
#define TW_WGMMA_USES(N) 1
#endif
#define TW_WGMMA_ONE(N, T, Name, Tail, Kind, ...) \
  template <int MajorA, int MajorB> struct Wgmma<N, T, MajorA, MajorB> { \
    static_assert(sizeof(T) == 2 || MajorA + MajorB == 0, "wgmma reads such elements along k only"); \
    using Sum = typename sum_of<T>::type; \
    static TW_GPU void run(Sum (&d)[N / 2], uint64_t a, uint64_t b, int add) { \
      TW_WGMMA_##N(Name, Tail, Kind, __VA_ARGS__); \
    } \
  };
#define TW_WGMMA_ALL(N, MajorsAt) \
  TW_WGMMA_ONE(N, bf16, "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16", ", 1, 1, " MajorsAt, "+f", , \
               "n"(MajorA), "n"(MajorB)) \
  TW_WGMMA_ONE(N, fp16, "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16", ", 1, 1, " MajorsAt, "+f", , \
               "n"(MajorA), "n"(MajorB)) \
  TW_WGMMA_ONE(N, fp8_e4m3, "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3", ", 1, 1", "+f", ) \
  TW_WGMMA_ONE(N, fp8_e5m2, "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e5m2.e5m2", ", 1, 1", "+f", ) \
  TW_WGMMA_ONE(N, tf32, "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32", ", 1, 1", "+f", ) \
  TW_WGMMA_ONE(N, int8, "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8", "", "+r", )

#if TW_WGMMA_USES(8)
TW_WGMMA_ALL(8, "%7, %8")
#endif
#if TW_WGMMA_USES(16)
TW_WGMMA_ALL(16, "%11, %12")
#endif
#if TW_WGMMA_USES(24)
TW_WGMMA_ALL(24, "%15, %16")
#endif
#if TW_WGMMA_USES(32)
TW_WGMMA_ALL(32, "%19, %20")
#endif
#if TW_WGMMA_USES(40)
TW_WGMMA_ALL(40, "%23, %24")
#endif
#if TW_WGMMA_USES(48)
TW_WGMMA_ALL(48, "%27, %28")
#endif
#if TW_WGMMA_USES(56)
TW_WGMMA_ALL(56, "%31, %32")
#endif
#if TW_WGMMA_USES(64)
TW_WGMMA_ALL(64, "%35, %36")
#endif
#if TW_WGMMA_USES(72)
TW_WGMMA_ALL(72, "%39, %40")
#endif
#if TW_WGMMA_USES(80)
TW_WGMMA_ALL(80, "%43, %44")
#endif
#if TW_WGMMA_USES(88)
TW_WGMMA_ALL(88, "%47, %48")
#endif
#if TW_WGMMA_USES(96)
TW_WGMMA_ALL(96, "%51, %52")
#endif
#if TW_WGMMA_USES(104)
TW_WGMMA_ALL(104, "%55, %56")
#endif
#if TW_WGMMA_USES(112)
TW_WGMMA_ALL(112, "%59, %60")
#endif
#if TW_WGMMA_USES(120)
TW_WGMMA_ALL(120, "%63, %64")
#endif
#if TW_WGMMA_USES(128)
TW_WGMMA_ALL(128, "%67, %68")
#endif
#if TW_WGMMA_USES(136)
TW_WGMMA_ALL(136, "%71, %72")
#endif
#if TW_WGMMA_USES(144)
TW_WGMMA_ALL(144, "%75, %76")
#endif
#if TW_WGMMA_USES(152)
TW_WGMMA_ALL(152, "%79, %80")
#endif
#if TW_WGMMA_USES(160)
TW_WGMMA_ALL(160, "%83, %84")
#endif
#if TW_WGMMA_USES(168)
TW_WGMMA_ALL(168, "%87, %88")
#endif
#if TW_WGMMA_USES(176)
TW_WGMMA_ALL(176, "%91, %92")
#endif
#if TW_WGMMA_USES(184)
TW_WGMMA_ALL(184, "%95, %96")
#endif
#if TW_WGMMA_USES(192)
TW_WGMMA_ALL(192, "%99, %100")
#endif
#if TW_WGMMA_USES(200)
TW_WGMMA_ALL(200, "%103, %104")
#endif
#if TW_WGMMA_USES(208)
TW_WGMMA_ALL(208, "%107, %108")
#endif
#if TW_WGMMA_USES(224)
TW_WGMMA_ALL(224, "%115, %116")
#endif
#if TW_WGMMA_USES(240)
TW_WGMMA_ALL(240, "%123, %124")
#endif
#if TW_WGMMA_USES(256)
TW_WGMMA_ALL(256, "%131, %132")
#endif

// Two neighbouring results as one word; and of their positive parts, where NaN passes.
#define TW_PAIR(Name, T, Convert) \
  TW_GPU uint32_t Name(T, float x, float y) { \
    uint32_t w; \
    asm(Convert " %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x)); \
    return w; \
  }
TW_PAIR(pair, bf16, "cvt.rn.bf16x2.f32")
TW_PAIR(pair, fp16, "cvt.rn.f16x2.f32")
TW_PAIR(pair_at_least_0, bf16, "cvt.rn.relu.bf16x2.f32")
TW_PAIR(pair_at_least_0, fp16, "cvt.rn.relu.f16x2.f32")
#undef TW_PAIR

// A warp stores four 8 x 8 matrices of two-byte elements, spread over its lanes as accumulators are: lanes 8i to
// 8i + 7 say where the rows of the i-th go.
TW_GPU void store_matrices(void *row, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}
// The same, each transposed.
TW_GPU void store_matrices_transposed(void *row, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}
// And reads four such matrices back, from where they were stored.
TW_GPU void read_matrices(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

}  // namespace tw
