// direct: register blocks straight from where A and B lie.  What it refuses.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace direct {

#define TW_SELECT_CPU_GEMM_DIRECT(X) X(rows) X(columns) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_GEMM_DIRECT)

inline const Rule *limits(const Schedule &, const GemmProblem &) { return nullptr; }

}  // namespace direct
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
