// packed, preshuffle: panels of A and B are packed into cache blocks.  What it refuses.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace packed {

// `grain_*`: sizes are multiples of these (1 where there is edge code); `b_packed`: B comes packed (the pipeline preshuffle).
// clang-format off
#define TW_SELECT_CPU_GEMM_PACKED(X) \
  X(tile_n) X(tile_k) X(rows) X(columns) X(step) X(split_k) X(grain_m) X(grain_n) X(grain_k) X(b_packed)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_GEMM_PACKED)

inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  return broken_edges(p, s.grain_m, s.grain_n, s.grain_k);
}

}  // namespace packed
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
