// ck_rows: CK Tile's dot_do_o and convert_dq.  What they refuse.
#pragma once
#include <tilewright/hip/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace ck_rows {

// `tile_head`: elements of a head that a block holds; `pad_*`: edge code of rows and heads; `ordered`: convert_dq adds up
// accumulators of splits.
#define TW_SELECT_HIP_ATTENTION_BACKWARD_CK_ROWS(X) X(tile_head) X(pad_rows) X(pad_head) X(ordered)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_BACKWARD_CK_ROWS)

constexpr int64_t kRows = 64;                               // of a block
constexpr int64_t kFar = (int64_t(1) << 31) - 1;            // of a size or stride
constexpr int64_t kMostBytes = (int64_t(1) << 31) - 65536;  // of what a block reaches of one head
constexpr int64_t kMostBlocks = 65535;                      // of a grid, but for its first axis

inline constexpr Rule lengths{"amd-backward-lengths", TW_LIMIT,
                              "sequences of different lengths: rows behind the last would keep what they held",
                              "use rows"};
inline constexpr Rule in_parts{"amd-backward-heads", TW_LIMIT, "{dkv_splits} sums of dk and dv a head of keys",
                               "use a deterministic kernel, which adds them up"};
inline constexpr Rule odd_rows{"amd-rows", TW_DIVISIBILITY,
                               "rows or keys are no multiple of 64, or differ between sequences",
                               "use a kernel with edge code of rows"};
inline constexpr Rule odd_heads{"amd-heads", TW_DIVISIBILITY,
                                "heads of {head_dim} and {head_dim_v} are not the tile's {tile_head}",
                                "use a padded kernel"};
inline constexpr Rule unaligned{"amd-alignment", TW_ALIGNMENT,
                                "strides and addresses are not all multiples of 16 bytes",
                                "align them, or use a kernel with edge code of heads"};
inline constexpr Rule far_strides{"amd-operand-size", TW_LIMIT,
                                  "a stride is negative or 2^31 elements or more, or a head spans 2 GiB",
                                  "split the problem"};
inline constexpr Rule many_blocks{"amd-tiles", TW_LIMIT, "more sequences or heads than a launch has blocks for",
                                  "split the problem"};

// A matrix that is read or written: its strides, and how many of its rows a sequence has.
struct Lines {
  int64_t batch, row, head, rows;
};
inline bool whole(const AttentionBackwardProblem &p, const Lines &x) {
  const int64_t width = 16 / p.size;
  return !(x.batch % width || x.row % width || x.head % width);
}
inline bool near(const Lines &x) {
  if (x.row < 0 || x.head < 0 || x.row > kFar || x.head > kFar) return false;
  return (Wide(x.rows) + kRows) * x.row * 4 < kMostBytes;
}

inline const Rule *limits(const Schedule &s, const AttentionBackward &a) {
  const AttentionBackwardProblem &p = a.p;
  if (const Rule *rule = size_limits(p)) return rule;
  const bool dot = p.family == kDot, dq = p.accumulate == kSumsOfDq || p.accumulate == kAllSums;
  const bool dkv = p.accumulate == kSumsOfDkv || p.accumulate == kAllSums;
  if (!dot && (p.varlen || p.seqlens_q || p.seqlens_k)) return &lengths;
  if (!dot && dkv && p.dkv_splits > 1 && !s.ordered) return &in_parts;
  const bool tables = p.varlen || p.seqlens_q;
  const int64_t odd = ((dot || dq) ? p.seqlen_q % kRows : 0) | (!dot && dkv ? p.seqlen_k % kRows : 0);
  if (!s.pad_rows && (tables || odd)) return &odd_rows;
  const Lines dotted[] = {{p.o_batch, p.o_row, p.o_head, p.seqlen_q}, {p.do_batch, p.do_row, p.do_head, p.seqlen_q}};
  const Lines results[] = {{p.dq_batch, p.dq_row, p.dq_head, p.seqlen_q},
                           {p.dk_batch, p.dk_row, p.dk_head, p.seqlen_k},
                           {p.dv_batch, p.dv_row, p.dv_head, p.seqlen_k}};
  const Lines *first = dot ? dotted : dq ? results : results + 1;
  const Lines *end = dot ? dotted + 2 : dkv ? results + 3 : results + 1;
  if (!s.pad_head) {
    if (p.head_dim_v != s.tile_head || (!dot && p.head_dim != s.tile_head)) return &odd_heads;
    for (const Lines *x = first; x < end; ++x)
      if (!whole(p, *x)) return &unaligned;
    if (!p.aligned) return &unaligned;
  }
  for (const Lines *x = first; x < end; ++x)
    if (!near(*x)) return &far_strides;
  return larger(p.batch, p.heads_q) > kMostBlocks ? &many_blocks : nullptr;
}

}  // namespace ck_rows
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
