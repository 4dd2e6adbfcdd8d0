// combine: splits combined, a team of warps for a row of one head.  What it refuses.
#pragma once
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace combine {

#define TW_SELECT_CUDA_ATTENTION_COMBINE(X) X(warps)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_COMBINE)

inline constexpr Rule odd_parts{"nv-alignment", TW_ALIGNMENT,
                                "rows of partial results, {head_dim_v} elements, are not a multiple of 16 bytes",
                                TW_OTHER};

inline const Rule *limits(const Schedule &, const Attention &a) {
  return !nothing_to_do(a.p) && a.p.head_dim_v % 4 ? &odd_parts : nullptr;
}

}  // namespace combine
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
