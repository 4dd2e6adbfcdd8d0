// What kernels of attention on NVIDIA GPUs refuse alike: sizes, and what TMA does not read.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace cuda_attention {

#define TW_OTHER "use another kernel of the pool"
inline constexpr Rule many_rows{"nv-size", TW_LIMIT, "2^30 or more queries or keys", TW_OTHER};
inline constexpr Rule many_heads{"nv-size", TW_LIMIT, "2^30 or more query rows over all heads", TW_OTHER};
inline constexpr Rule odd_results{
    "nv-alignment", TW_ALIGNMENT,
    "a row of the result, {head_dim_v} elements of {size_out} bytes, is not a multiple of 16 bytes", TW_OTHER};
inline constexpr Rule odd_elements{"nv-alignment", TW_ALIGNMENT, "head_dim {head_dim} is not a multiple of 16 bytes",
                                   TW_OTHER};
inline constexpr Rule odd_strides{"nv-alignment", TW_ALIGNMENT,
                                  "an address is not a multiple of 16 bytes, or a stride is 0 or not a multiple of it",
                                  TW_OTHER};

constexpr int64_t kRows = 64;                // of a warpgroup
constexpr int64_t kLineBytes = 16;           // what TMA requires of addresses and strides
constexpr int64_t kMost = int64_t(1) << 30;  // rows, keys, and rows of heads: places are int32

inline bool nothing_to_do(const AttentionProblem &p) { return p.batch == 0 || p.seqlen_q == 0; }

// Places are int32: of rows, of keys, of rows of heads.
inline const Rule *size_limits(const AttentionProblem &p) {
  const int64_t rows = larger(p.seqlen_q, p.total_q), keys = larger(p.seqlen_k, p.total_k);
  if (larger(larger(rows, keys), p.sink_tokens) >= kMost) return &many_rows;
  return Wide(p.seqlen_q) * p.heads_q * p.batch * larger(1, p.num_splits) >= kMost ? &many_heads : nullptr;
}

// Strides of what there is more than one of.
inline bool readable(int64_t outer, int64_t rows, int64_t heads, int64_t batch, int64_t row, int64_t head,
                     int64_t size) {
  if (outer == 0 || rows == 0) return true;
  const auto whole = [size](int64_t count, int64_t stride) {
    return count == 1 || (stride > 0 && stride * size % kLineBytes == 0);
  };
  return whole(outer, batch) && whole(rows, row) && whole(heads, head);
}

// What every kernel requires that stores whole lines of results.
inline const Rule *store_limits(const AttentionProblem &p) {
  if (const Rule *large = size_limits(p)) return large;
  return p.head_dim_v * p.size_out % kLineBytes ? &odd_results : nullptr;
}

// What every kernel requires whose operands come by TMA; `packs`: query heads of a head of keys share a tile.
inline const Rule *tma_limits(const Attention &a, bool packs) {
  const AttentionProblem &p = a.p;
  if (const Rule *broken = store_limits(p)) return broken;
  if (packs && p.head_dim % 8) return &odd_elements;
  const int64_t sequences = p.varlen ? 1 : p.batch, rows = p.varlen ? p.total_q : p.seqlen_q;
  const bool paged = p.pages != kNoPages, packed = p.varlen && p.family != kAppend;
  const int64_t outer = paged ? p.page_count : packed ? 1 : p.batch;
  const int64_t keys = paged ? p.page_size : packed ? p.total_k : p.seqlen_k;
  const bool read = readable(sequences, rows, p.heads_q, p.q_batch, p.q_row, p.q_head, p.size_q) &&
                    readable(outer, keys, p.heads_kv, p.k_batch, p.k_row, p.k_head, p.size_q) &&
                    readable(outer, keys, p.heads_kv, p.v_batch, p.v_row, p.v_head, p.size_q);
  const bool written = p.o_batch * p.size_out % kLineBytes == 0 && p.o_row * p.size_out % kLineBytes == 0 &&
                       p.o_head * p.size_out % kLineBytes == 0;
  return p.aligned && read && written ? nullptr : &odd_strides;
}

}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
