// ws: TMA feeds wgmma, warp-specialized; dk and dv in registers, dq added up by TMA.  What it refuses.
#pragma once
#include <tilewright/cuda/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace ws {

// clang-format off
#define TW_SELECT_CUDA_ATTENTION_BACKWARD_WS(X) \
  X(tile_m) X(tile_n) X(q_stages) X(do_stages) X(ds_stages) X(ahead) X(head_dim) X(head_dim_v) X(scored)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_BACKWARD_WS)

inline constexpr Rule any_order{"nv-deterministic", TW_LIMIT, "gradients of a bias that repeats are added in any order",
                                TW_OTHER_BACKWARD};
inline constexpr Rule odd_elements{"nv-alignment", TW_ALIGNMENT,
                                   "{head_dim} or {head_dim_v} elements of a head are no whole 16 bytes",
                                   TW_OTHER_BACKWARD};
inline constexpr Rule odd_strides{"nv-alignment", TW_ALIGNMENT,
                                  "an address or a stride is not a multiple of 16 bytes, or 0", TW_OTHER_BACKWARD};

// Strides of what there is more than one of.
inline bool readable(int64_t outer, int64_t rows, int64_t heads, int64_t batch, int64_t row, int64_t head,
                     int64_t size) {
  if (outer == 0 || rows == 0) return true;
  const auto whole = [size](int64_t count, int64_t stride) {
    return count == 1 || (stride > 0 && stride * size % kLineBytes == 0);
  };
  return whole(outer, batch) && whole(rows, row) && whole(heads, head);
}

inline const Rule *limits(const Schedule &, const AttentionBackward &a) {
  const AttentionBackwardProblem &p = a.p;
  if (const Rule *large = size_limits(p)) return large;
  const bool repeats = p.dbias && (p.bias_batch < p.batch || p.bias_heads < p.heads_q || p.bias_rows < p.seqlen_q ||
                                   p.bias_keys < p.seqlen_k);
  if (p.deterministic && repeats) return &any_order;
  if (p.head_dim * p.size % kLineBytes || p.head_dim_v * p.size % kLineBytes) return &odd_elements;
  const int64_t outer = p.varlen ? 1 : p.batch, rows = p.varlen ? p.total_q : p.seqlen_q,
                keys = p.varlen ? p.total_k : p.seqlen_k;
  const bool read = readable(outer, rows, p.heads_q, p.q_batch, p.q_row, p.q_head, p.size) &&
                    readable(outer, rows, p.heads_q, p.do_batch, p.do_row, p.do_head, p.size) &&
                    readable(outer, keys, p.heads_kv, p.k_batch, p.k_row, p.k_head, p.size) &&
                    readable(outer, keys, p.heads_kv, p.v_batch, p.v_row, p.v_head, p.size);
  const int64_t results = p.dk_batch | p.dk_row | p.dk_head | p.dv_batch | p.dv_row | p.dv_head;
  const int64_t written = p.accumulate == kAllSums ? 0 : results;  // accumulators lie as it wants them
  return p.aligned && read && written * p.size % kLineBytes == 0 ? nullptr : &odd_strides;
}

}  // namespace ws
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
