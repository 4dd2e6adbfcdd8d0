// gemv, stream: one operand is streamed past a handful of vectors of the other.  What it refuses.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace stream {

#define TW_SELECT_CPU_GEMM_STREAM(X) X(most) X(step) X(gemv)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_GEMM_STREAM)

inline constexpr Rule cpu_stream_size{"cpu-stream-size", TW_LIMIT,
                                      "m = {m} and n = {n} are both over the {most} vectors this kernel holds",
                                      "use a packed or direct kernel"};

inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  return smaller(p.m, p.n) > s.most ? &cpu_stream_size : nullptr;
}

}  // namespace stream
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
