// ck_tile: CK Tile's kernel of dq, dk and dv.  What it refuses.
#pragma once
#include <tilewright/hip/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace ck_tile {

// `tile_*`: rows and keys of an iteration, and the heads it holds; `pad_*`: edge code of heads; `ordered`: dq is added up in
// one order.
#define TW_SELECT_HIP_ATTENTION_BACKWARD_CK_TILE(X) \
  X(tile_m0) X(tile_n0) X(tile_head) X(tile_head_v) X(pad_head) X(pad_head_v) X(ordered)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_BACKWARD_CK_TILE)

constexpr int64_t kFar = (int64_t(1) << 31) - 1;            // of a size or stride
constexpr int64_t kMostBytes = (int64_t(1) << 31) - 65536;  // of what a block reaches of one head
constexpr int64_t kMostBlocks = 65535;                      // of a grid, but for its first axis
constexpr int64_t kMostPlaces = 65536;                      // that ALiBi's 16-bit distances distinguish

inline constexpr Rule unordered{"amd-backward-deterministic", TW_LIMIT, "atomic sums of dq have no order",
                                "use a deterministic kernel, or loops"};
inline constexpr Rule added_heads{"amd-backward-heads", TW_LIMIT,
                                  "{heads_q} query heads share {heads_kv} heads of keys, and dk and dv are no sums",
                                  "use accumulate all"};
inline constexpr Rule other_parts{
    "amd-backward-heads", TW_LIMIT,
    "{dkv_splits} sums of dk and dv a head of keys, and {heads_q} query heads share {heads_kv}",
    "use dkv_splits 0: one sum a query head"};
inline constexpr Rule loose_keys{"amd-backward-lengths", TW_LIMIT,
                                 "sequences of different lengths, or without rows, and dk and dv are no sums",
                                 "use accumulate all"};
inline constexpr Rule repeated_bias{"amd-bias", TW_LIMIT, "a bias that repeats along keys", "spread it out along keys"};
inline constexpr Rule far_alibi{"amd-alibi", TW_LIMIT, "ALiBi over {seqlen_q} rows and {seqlen_k} keys in 16 bits",
                                "use loops"};
inline constexpr Rule odd_heads{"amd-heads", TW_DIVISIBILITY, "heads of {head_dim} are not the tile's {tile_head}",
                                "use a padded kernel"};
inline constexpr Rule odd_heads_v{"amd-heads", TW_DIVISIBILITY,
                                  "heads of {head_dim_v} are not the tile's {tile_head_v}", "use a padded kernel"};
inline constexpr Rule unaligned{"amd-alignment", TW_ALIGNMENT,
                                "heads, strides and addresses are not all multiples of 16 bytes",
                                "align them, or use a kernel with edge code of heads"};
inline constexpr Rule far_strides{"amd-operand-size", TW_LIMIT, "a stride is negative, or 2^31 elements or more",
                                  "split the problem"};
inline constexpr Rule far_heads{"amd-operand-size", TW_LIMIT, "one head of an operand, or sums of dq, span 2 GiB",
                                "split the problem"};
inline constexpr Rule many_blocks{"amd-tiles", TW_LIMIT, "more sequences or heads than a launch has blocks for",
                                  "split the problem"};

inline const Rule *broken_features(const Schedule &s, const AttentionBackward &a) {
  const AttentionBackwardProblem &p = a.p;
  if (p.deterministic && !s.ordered) return &unordered;
  if (p.accumulate != kAllSums) {
    if (p.heads_q != p.heads_kv) return &added_heads;
    if (p.varlen || p.seqlens_q || p.seqlens_k || !p.seqlen_q) return &loose_keys;
  } else if (p.dkv_splits != a.group) {
    return &other_parts;
  }
  if (p.bias == kBackwardBiasTensor && p.bias_keys != p.seqlen_k) return &repeated_bias;
  return p.bias == kBackwardAlibi && p.seqlen_q + p.seqlen_k > kMostPlaces ? &far_alibi : nullptr;
}

inline bool whole_lines(const AttentionBackwardProblem &p, int64_t batch, int64_t row, int64_t head) {
  const int64_t width = 16 / p.size;
  return !(batch % width || row % width || head % width);
}

// Results have edge code of their own where operands have: both are stored by elements then.
inline const Rule *broken_heads(const Schedule &s, const AttentionBackwardProblem &p) {
  const bool accum = p.accumulate == kAllSums;
  if (!s.pad_head) {
    if (p.head_dim != s.tile_head) return &odd_heads;
    const bool lie = whole_lines(p, p.q_batch, p.q_row, p.q_head) && whole_lines(p, p.k_batch, p.k_row, p.k_head) &&
                     (accum || whole_lines(p, p.dk_batch, p.dk_row, p.dk_head));
    if (!lie || !p.aligned) return &unaligned;
  }
  if (s.pad_head_v) return nullptr;
  if (p.head_dim_v != s.tile_head_v) return &odd_heads_v;
  const bool lie = whole_lines(p, p.v_batch, p.v_row, p.v_head) && whole_lines(p, p.do_batch, p.do_row, p.do_head) &&
                   (accum || whole_lines(p, p.dv_batch, p.dv_row, p.dv_head));
  return lie && p.aligned ? nullptr : &unaligned;
}

inline const Rule *broken_spans(const Schedule &s, const AttentionBackwardProblem &p) {
  const int64_t strides[] = {p.q_row,  p.q_head,  p.k_row,  p.k_head,  p.v_row,  p.v_head,
                             p.do_row, p.do_head, p.dk_row, p.dk_head, p.dv_row, p.dv_head};
  for (int64_t stride : strides)
    if (stride > kFar || stride < 0) return &far_strides;
  const Wide rows = Wide(p.seqlen_q) + s.tile_m0, keys = Wide(p.seqlen_k) + s.tile_n0;
  const Wide reaches[] = {rows * p.q_row * p.size, rows * p.do_row * p.size, keys * p.k_row * p.size,
                          keys * p.v_row * p.size, keys * p.dk_row * 4,      keys * p.dv_row * 4,
                          rows * p.head_dim * 4};
  for (Wide reach : reaches)
    if (reach >= kMostBytes) return &far_heads;
  // A slice of dq has an int as its index.
  const Wide prepared = (p.varlen ? Wide(p.total_q) + Wide(128) * (p.batch + 1) : (rows + 128) * p.batch) * p.heads_q;
  if (prepared * p.head_dim * 4 >= kMostBytes) return &far_heads;
  if (p.bias == kBackwardBiasTensor && rows * keys * p.size >= kMostBytes) return &far_heads;
  return larger(p.batch, p.heads_q) > kMostBlocks ? &many_blocks : nullptr;
}

inline const Rule *limits(const Schedule &s, const AttentionBackward &a) {
  const Rule *rule = size_limits(a.p);
  if (rule == nullptr) rule = broken_features(s, a);
  if (rule == nullptr) rule = broken_heads(s, a.p);
  return rule == nullptr ? broken_spans(s, a.p) : rule;
}

}  // namespace ck_tile
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
