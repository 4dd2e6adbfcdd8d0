// mla: heads of up to 576 elements whose values are the first 512 of their keys.  What it refuses.
#pragma once
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace mla {

// `scored`: something is done to scores before the softmax, or dropout after it.
#define TW_SELECT_CUDA_ATTENTION_MLA(X) X(tile_n) X(stages) X(head_dim) X(head_dim_v) X(scored) X(size_kv)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_MLA)

inline const Rule *limits(const Schedule &, const Attention &a) {
  return nothing_to_do(a.p) ? nullptr : tma_limits(a, true);
}

}  // namespace mla
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
