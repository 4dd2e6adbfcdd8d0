// What kernels of attention's gradients on NVIDIA GPUs refuse alike.
#pragma once
#include <tilewright/select/attention_backward.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {

#define TW_OTHER_BACKWARD "use another kernel of the pool"
inline constexpr Rule many_rows{"nv-size", TW_LIMIT, "2^30 or more rows, keys, or rows of heads", TW_OTHER_BACKWARD};

constexpr int64_t kLineBytes = 16;           // what TMA requires of addresses and strides
constexpr int64_t kMost = int64_t(1) << 30;  // places are int32

inline const Rule *size_limits(const AttentionBackwardProblem &p) {
  const int64_t rows = larger(p.seqlen_q, p.total_q), keys = larger(p.seqlen_k, p.total_k);
  const bool many = larger(rows, keys) >= kMost || p.sink_tokens >= kMost ||
                    Wide(p.seqlen_q) * p.heads_q * p.batch >= kMost ||
                    Wide(p.seqlen_k) * p.heads_kv * p.batch * larger(1, p.dkv_splits) >= kMost;
  return many ? &many_rows : nullptr;
}

}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
