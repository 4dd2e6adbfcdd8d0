// Warpgroup matrix multiply: 64 x N accumulators in registers, operands in shared memory.
//
// A macro for each N holds the operand list; the element types come in as the instruction's name, the
// kind of register the accumulators are in as a letter.
// (The lists are long and dull; a script of a few lines wrote them.)
#pragma once
#include <tilewright/cuda/primitives/operand.h>
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

#define TW_WGMMA_8(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; " Name " {%0, %1, %2, %3}, %4, %5, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_16(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; " Name " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p" Tail \
               "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_24(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %14, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, %12, %13, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_32(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_40(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %22, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19}, %20, %21, p" Tail \
      "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_48(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %26, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23}, %24, %25, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_56(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %30, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27}, %28, %29, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_64(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_72(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %38, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}, %36, %37, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_80(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %42, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, %40, %41, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_88(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %46, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43}, %44, %45, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_96(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %50, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47}, %48, %49, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_104(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %54, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51}, %52, %53, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_112(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %58, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55}, %56, %57, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_120(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %62, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59}, %60, %61, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_128(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
               "%61, %62, %63}, %64, %65, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), Kind(d[57]), \
                 Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_136(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %70, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
               "%61, %62, %63, %64, %65, %66, %67}, %68, %69, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), Kind(d[57]), \
                 Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
                 Kind(d[65]), Kind(d[66]), Kind(d[67]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_144(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %74, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
               "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71}, %72, %73, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), Kind(d[57]), \
                 Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
                 Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_152(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %78, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
               "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75}, %76, %77, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), Kind(d[57]), \
                 Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
                 Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), \
                 Kind(d[72]), Kind(d[73]), Kind(d[74]), Kind(d[75]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_160(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %82, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79}, %80, %81, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_168(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %86, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83}, %84, %85, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_176(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %90, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87}, " \
      "%88, %89, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), Kind(d[86]), Kind(d[87]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_184(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %94, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
               "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
               "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91}, %92, %93, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), Kind(d[57]), \
                 Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
                 Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), \
                 Kind(d[72]), Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), \
                 Kind(d[79]), Kind(d[80]), Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), \
                 Kind(d[86]), Kind(d[87]), Kind(d[88]), Kind(d[89]), Kind(d[90]), Kind(d[91]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_192(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %98, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, " \
      "%89, %90, %91, %92, %93, %94, %95}, %96, %97, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), Kind(d[86]), Kind(d[87]), Kind(d[88]), \
        Kind(d[89]), Kind(d[90]), Kind(d[91]), Kind(d[92]), Kind(d[93]), Kind(d[94]), Kind(d[95]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_200(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %102, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, " \
      "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99}, %100, %101, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), Kind(d[86]), Kind(d[87]), Kind(d[88]), \
        Kind(d[89]), Kind(d[90]), Kind(d[91]), Kind(d[92]), Kind(d[93]), Kind(d[94]), Kind(d[95]), Kind(d[96]), \
        Kind(d[97]), Kind(d[98]), Kind(d[99]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_208(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %106, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, " \
      "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103}, %104, %105, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), Kind(d[86]), Kind(d[87]), Kind(d[88]), \
        Kind(d[89]), Kind(d[90]), Kind(d[91]), Kind(d[92]), Kind(d[93]), Kind(d[94]), Kind(d[95]), Kind(d[96]), \
        Kind(d[97]), Kind(d[98]), Kind(d[99]), Kind(d[100]), Kind(d[101]), Kind(d[102]), Kind(d[103]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_224(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %114, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, " \
      "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
      "%109, %110, %111}, %112, %113, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), Kind(d[86]), Kind(d[87]), Kind(d[88]), \
        Kind(d[89]), Kind(d[90]), Kind(d[91]), Kind(d[92]), Kind(d[93]), Kind(d[94]), Kind(d[95]), Kind(d[96]), \
        Kind(d[97]), Kind(d[98]), Kind(d[99]), Kind(d[100]), Kind(d[101]), Kind(d[102]), Kind(d[103]), Kind(d[104]), \
        Kind(d[105]), Kind(d[106]), Kind(d[107]), Kind(d[108]), Kind(d[109]), Kind(d[110]), Kind(d[111]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_240(Name, Tail, Kind, ...) \
  asm volatile( \
      "{ .reg .pred p; setp.ne.b32 p, %122, 0; " Name \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, " \
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, " \
      "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, " \
      "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
      "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119}, %120, %121, p" Tail "; }" \
      : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), Kind(d[8]), \
        Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), Kind(d[16]), \
        Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), Kind(d[23]), Kind(d[24]), \
        Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), Kind(d[30]), Kind(d[31]), Kind(d[32]), \
        Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), \
        Kind(d[41]), Kind(d[42]), Kind(d[43]), Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), \
        Kind(d[49]), Kind(d[50]), Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), \
        Kind(d[57]), Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
        Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), Kind(d[72]), \
        Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), Kind(d[79]), Kind(d[80]), \
        Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), Kind(d[86]), Kind(d[87]), Kind(d[88]), \
        Kind(d[89]), Kind(d[90]), Kind(d[91]), Kind(d[92]), Kind(d[93]), Kind(d[94]), Kind(d[95]), Kind(d[96]), \
        Kind(d[97]), Kind(d[98]), Kind(d[99]), Kind(d[100]), Kind(d[101]), Kind(d[102]), Kind(d[103]), Kind(d[104]), \
        Kind(d[105]), Kind(d[106]), Kind(d[107]), Kind(d[108]), Kind(d[109]), Kind(d[110]), Kind(d[111]), \
        Kind(d[112]), Kind(d[113]), Kind(d[114]), Kind(d[115]), Kind(d[116]), Kind(d[117]), Kind(d[118]), Kind(d[119]) \
      : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

#define TW_WGMMA_256(Name, Tail, Kind, ...) \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; " Name \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, " \
               "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
               "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
               "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, " \
               "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
               "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p" Tail "; }" \
               : Kind(d[0]), Kind(d[1]), Kind(d[2]), Kind(d[3]), Kind(d[4]), Kind(d[5]), Kind(d[6]), Kind(d[7]), \
                 Kind(d[8]), Kind(d[9]), Kind(d[10]), Kind(d[11]), Kind(d[12]), Kind(d[13]), Kind(d[14]), Kind(d[15]), \
                 Kind(d[16]), Kind(d[17]), Kind(d[18]), Kind(d[19]), Kind(d[20]), Kind(d[21]), Kind(d[22]), \
                 Kind(d[23]), Kind(d[24]), Kind(d[25]), Kind(d[26]), Kind(d[27]), Kind(d[28]), Kind(d[29]), \
                 Kind(d[30]), Kind(d[31]), Kind(d[32]), Kind(d[33]), Kind(d[34]), Kind(d[35]), Kind(d[36]), \
                 Kind(d[37]), Kind(d[38]), Kind(d[39]), Kind(d[40]), Kind(d[41]), Kind(d[42]), Kind(d[43]), \
                 Kind(d[44]), Kind(d[45]), Kind(d[46]), Kind(d[47]), Kind(d[48]), Kind(d[49]), Kind(d[50]), \
                 Kind(d[51]), Kind(d[52]), Kind(d[53]), Kind(d[54]), Kind(d[55]), Kind(d[56]), Kind(d[57]), \
                 Kind(d[58]), Kind(d[59]), Kind(d[60]), Kind(d[61]), Kind(d[62]), Kind(d[63]), Kind(d[64]), \
                 Kind(d[65]), Kind(d[66]), Kind(d[67]), Kind(d[68]), Kind(d[69]), Kind(d[70]), Kind(d[71]), \
                 Kind(d[72]), Kind(d[73]), Kind(d[74]), Kind(d[75]), Kind(d[76]), Kind(d[77]), Kind(d[78]), \
                 Kind(d[79]), Kind(d[80]), Kind(d[81]), Kind(d[82]), Kind(d[83]), Kind(d[84]), Kind(d[85]), \
                 Kind(d[86]), Kind(d[87]), Kind(d[88]), Kind(d[89]), Kind(d[90]), Kind(d[91]), Kind(d[92]), \
                 Kind(d[93]), Kind(d[94]), Kind(d[95]), Kind(d[96]), Kind(d[97]), Kind(d[98]), Kind(d[99]), \
                 Kind(d[100]), Kind(d[101]), Kind(d[102]), Kind(d[103]), Kind(d[104]), Kind(d[105]), Kind(d[106]), \
                 Kind(d[107]), Kind(d[108]), Kind(d[109]), Kind(d[110]), Kind(d[111]), Kind(d[112]), Kind(d[113]), \
                 Kind(d[114]), Kind(d[115]), Kind(d[116]), Kind(d[117]), Kind(d[118]), Kind(d[119]), Kind(d[120]), \
                 Kind(d[121]), Kind(d[122]), Kind(d[123]), Kind(d[124]), Kind(d[125]), Kind(d[126]), Kind(d[127]) \
               : "l"(a), "l"(b), "r"(add)__VA_ARGS__)

// Accumulators += A.B, or = A.B where `add` is 0; one instruction eats 32 bytes of k.  MajorA and MajorB: 0
// where k is contiguous, 1 where m or n is (16-bit elements only).  Accumulators of int8 are int32.
template <int N, class T, int MajorA, int MajorB> struct Wgmma;

// Templates all of them, so that a compiler reads the operands of those that a kernel uses and of no other: to read all
// took a tenth of the time of a kernel.  MajorsAt are the numbers of the last two operands, MajorA and MajorB.
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

TW_WGMMA_ALL(8, "%7, %8")
TW_WGMMA_ALL(16, "%11, %12")
TW_WGMMA_ALL(24, "%15, %16")
TW_WGMMA_ALL(32, "%19, %20")
TW_WGMMA_ALL(40, "%23, %24")
TW_WGMMA_ALL(48, "%27, %28")
TW_WGMMA_ALL(56, "%31, %32")
TW_WGMMA_ALL(64, "%35, %36")
TW_WGMMA_ALL(72, "%39, %40")
TW_WGMMA_ALL(80, "%43, %44")
TW_WGMMA_ALL(88, "%47, %48")
TW_WGMMA_ALL(96, "%51, %52")
TW_WGMMA_ALL(104, "%55, %56")
TW_WGMMA_ALL(112, "%59, %60")
TW_WGMMA_ALL(120, "%63, %64")
TW_WGMMA_ALL(128, "%67, %68")
TW_WGMMA_ALL(136, "%71, %72")
TW_WGMMA_ALL(144, "%75, %76")
TW_WGMMA_ALL(152, "%79, %80")
TW_WGMMA_ALL(160, "%83, %84")
TW_WGMMA_ALL(168, "%87, %88")
TW_WGMMA_ALL(176, "%91, %92")
TW_WGMMA_ALL(184, "%95, %96")
TW_WGMMA_ALL(192, "%99, %100")
TW_WGMMA_ALL(200, "%103, %104")
TW_WGMMA_ALL(208, "%107, %108")
TW_WGMMA_ALL(224, "%115, %116")
TW_WGMMA_ALL(240, "%123, %124")
TW_WGMMA_ALL(256, "%131, %132")

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
