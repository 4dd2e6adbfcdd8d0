// fp8: both products in e4m3 by wgmma, values transposed in shared memory on their way.  What it refuses.
#pragma once
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace fp8 {

// `scored`: something is done to scores before the softmax, or dropout after it.
#define TW_SELECT_CUDA_ATTENTION_FP8(X) X(tile_n) X(warpgroups) X(head_dim) X(head_dim_v) X(scored)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_FP8)

inline const Rule *limits(const Schedule &, const Attention &a) {
  return nothing_to_do(a.p) ? nullptr : tma_limits(a, false);
}

}  // namespace fp8
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
