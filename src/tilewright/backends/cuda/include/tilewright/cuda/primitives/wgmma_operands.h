// The operand lists of warpgroup matrix multiplies, a macro for each N.  The element types come in as the instruction's
// name, the kind of register the accumulators are in as a letter.
// (The lists are long and dull; a script of a few lines wrote them.)
#pragma once

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
