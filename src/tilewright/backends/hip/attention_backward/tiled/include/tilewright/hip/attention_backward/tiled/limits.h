// tiled: dq, dk and dv by matrix instructions, in kernels of our own.  What it refuses.
#pragma once
#include <tilewright/hip/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace tiled {

#define TW_SELECT_HIP_ATTENTION_BACKWARD_TILED(X) X(tile_m) X(tile_n) X(threads) X(column_waves) X(staged)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_BACKWARD_TILED)

inline constexpr Rule many_blocks{"amd-tiles", TW_LIMIT, "more tiles and heads than a launch has blocks for",
                                  "use larger tiles, or loops"};

inline constexpr Rule any_order{"amd-deterministic", TW_LIMIT,
                                "gradients of slopes, or of a bias that repeats, are added in any order",
                                TW_OTHER_BACKWARD};

constexpr int64_t kMostThreads = int64_t(1) << 32;  // of a launch

inline const Rule *limits(const Schedule &s, const AttentionBackward &a) {
  const AttentionBackwardProblem &p = a.p;
  if (const Rule *large = size_limits(p)) return large;
  const bool repeats = p.dbias && (p.bias_batch < p.batch || p.bias_heads < p.heads_q || p.bias_rows < p.seqlen_q ||
                                   p.bias_keys < p.seqlen_k);
  if (p.deterministic && (p.dalibi || repeats)) return &any_order;
  const Wide rows = Wide(ceil_div(p.seqlen_q, s.tile_m) + 1) * p.heads_q * p.batch;
  const Wide keys = Wide(ceil_div(p.seqlen_k, s.tile_m) + 1) * p.heads_kv * p.batch;
  return (rows > keys ? rows : keys) * s.threads >= kMostThreads ? &many_blocks : nullptr;
}

}  // namespace tiled
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
