// loops: any size, stride and element type; the floor.  What it refuses.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace loops {

#define TW_SELECT_CPU_GEMM_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_GEMM_LOOPS)

inline const Rule *limits(const Schedule &, const GemmProblem &) { return nullptr; }

}  // namespace loops
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
