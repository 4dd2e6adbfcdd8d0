// loops: any element types, strides and alignment; the fallback.  What it refuses.
#pragma once
#include <tilewright/cuda/gemm/rules.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace loops {

#define TW_SELECT_CUDA_GEMM_LOOPS(X) X(tile_m) X(tile_n) X(tile_k)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_GEMM_LOOPS)

inline const Rule *limits(const Schedule &, const GemmProblem &) { return nullptr; }

}  // namespace loops
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
