// mma: cp.async feeds mma.sync, in two passes; every feature, any stride.  What it refuses.
#pragma once
#include <tilewright/cuda/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace mma {

// `own`, `met`: lines of a block's tile, and of those it meets; `warps_n`: warps that share lines.
// clang-format off
#define TW_SELECT_CUDA_ATTENTION_BACKWARD_MMA(X) \
  X(own) X(met) X(warps_n) X(head_dim) X(head_dim_v) X(scored) X(shared_bytes)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_BACKWARD_MMA)

inline constexpr Rule any_order{"nv-deterministic", TW_LIMIT,
                                "gradients of slopes, or of a bias that repeats, are added in any order",
                                TW_OTHER_BACKWARD};

inline const Rule *limits(const Schedule &, const AttentionBackward &a) {
  const AttentionBackwardProblem &p = a.p;
  if (const Rule *large = size_limits(p)) return large;
  const bool repeats = p.dbias && (p.bias_batch < p.batch || p.bias_heads < p.heads_q || p.bias_rows < p.seqlen_q ||
                                   p.bias_keys < p.seqlen_k);
  return p.deterministic && (p.dalibi || repeats) ? &any_order : nullptr;
}

}  // namespace mma
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
