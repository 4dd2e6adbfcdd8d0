// ck_tile: CK Tile's kernels; which of them (`route`) follows from the signature.  What it refuses.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace hip_attention {
namespace ck_tile {

// `tile_*`: rows, keys and head elements of an iteration, heads of V, the whole head of Q and K; `pad_*`: edge code of rows,
// keys, heads of Q and K, heads of V; `loaded`: K comes through registers; `most_parts`: that combine takes.
// clang-format off
#define TW_SELECT_HIP_ATTENTION_CK_TILE(X) \
  X(route) X(pipeline) X(tile_m0) X(tile_n0) X(tile_k0) X(tile_n1) X(tile_k0max) X(pad_rows) X(pad_keys) X(pad_head) \
  X(pad_head_v) X(loaded) X(most_parts)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_CK_TILE)

enum Route : int64_t { forward, paged, prefill, split, combine, append };
enum Pipeline : int64_t { qr_async, qs, other };

constexpr int64_t kWidth = 8;                               // elements of a whole load, of halves
constexpr int64_t kMost = (int64_t(1) << 31) - 1;           // of a size or stride
constexpr int64_t kMostBytes = (int64_t(1) << 31) - 65536;  // of what a block reaches of one head
constexpr int64_t kMostBlocks = 65535;                      // of a grid, but for its first axis
constexpr int64_t kMostPlaces = 65536;                      // that ALiBi's 16-bit distances distinguish
constexpr int64_t kCombineRows = 8;                         // of a block

#define TW_PADDED "use a padded kernel"
#define TW_SMALLER "split the problem"
#define TW_LOOPS "use loops"
inline constexpr Rule row_lengths{"amd-lengths", TW_LIMIT,
                                  "seqlens_q is given: CK Tile takes varlen or full sequences of queries",
                                  "use varlen (cu_seqlens_q)"};
inline constexpr Rule key_lengths{"amd-lengths", TW_LIMIT,
                                  "seqlens_k is given: CK Tile takes varlen or full sequences of keys",
                                  "use varlen (cu_seqlens_k)"};
inline constexpr Rule no_key_lengths{"amd-lengths", TW_LIMIT, "varlen queries over pages without seqlens_k",
                                     "give seqlens_k"};
inline constexpr Rule repeated_bias{"amd-bias", TW_LIMIT, "a bias that is broadcast along keys",
                                    "expand it along keys"};
inline constexpr Rule far_alibi{"amd-alibi", TW_LIMIT, "ALiBi over {seqlen_q} rows and {seqlen_k} keys in 16 bits",
                                TW_LOOPS};
inline constexpr Rule pool_pages{"amd-pages", TW_LIMIT,
                                 "pages of {page_size} slots addressed by indices: these CK Tile headers know 1",
                                 "use a block table"};
inline constexpr Rule odd_pages{"amd-pages", TW_DIVISIBILITY,
                                "pages of {page_size} slots are not a multiple of tile_n0 {tile_n0}",
                                "use pages of a multiple of {tile_n0}, or a kernel with a smaller tile_n0"};
inline constexpr Rule odd_rows{"amd-rows", TW_DIVISIBILITY, "{seqlen_q} rows are not a multiple of tile_m0 {tile_m0}",
                               TW_PADDED};
inline constexpr Rule odd_keys{"amd-keys", TW_DIVISIBILITY, "{seqlen_k} keys are not a multiple of tile_n0 {tile_n0}",
                               TW_PADDED};
inline constexpr Rule any_rows{
    "amd-rows", TW_DIVISIBILITY,
    "sequences have lengths of their own, and the kernel has whole tiles of {tile_m0} rows only", TW_PADDED};
inline constexpr Rule any_keys{
    "amd-keys", TW_DIVISIBILITY,
    "sequences have lengths of their own, and the kernel has whole tiles of {tile_n0} keys only", TW_PADDED};
inline constexpr Rule no_keys{"amd-keys", TW_DIVISIBILITY, "there are no keys, and the kernel has no code for that",
                              TW_PADDED};
inline constexpr Rule async_heads{
    "amd-heads", TW_DIVISIBILITY,
    "head_dim {head_dim} is below tile_k0max {tile_k0max}: qr_async reads what lies behind it in K, times 0", "use qr"};
inline constexpr Rule odd_heads{"amd-heads", TW_DIVISIBILITY, "head_dim {head_dim} is not tile_k0max {tile_k0max}",
                                TW_PADDED};
inline constexpr Rule odd_heads_v{"amd-heads", TW_DIVISIBILITY, "head_dim_v {head_dim_v} is not tile_n1 {tile_n1}",
                                  TW_PADDED};
inline constexpr Rule unaligned_qk{
    "amd-alignment", TW_ALIGNMENT,
    "head_dim {head_dim}, a stride or an address of q or k is not a multiple of 16 bytes",
    "align them, or use qr with edge code of heads"};
inline constexpr Rule unaligned_v{
    "amd-alignment", TW_ALIGNMENT,
    "head_dim_v {head_dim_v}, a stride or an address of v or o is not a multiple of 16 bytes",
    "align them, or use qr with edge code of heads"};
inline constexpr Rule far_strides{"amd-operand-size", TW_LIMIT, "a stride is negative, or 2^31 elements or more",
                                  TW_SMALLER};
inline constexpr Rule far_heads{"amd-operand-size", TW_LIMIT, "one head of an operand spans 2 GiB or more", TW_SMALLER};
inline constexpr Rule many_tiles{"amd-tiles", TW_LIMIT, "more sequences, heads or tiles than a launch has blocks for",
                                 TW_SMALLER};
inline constexpr Rule many_heads{"amd-tiles", TW_LIMIT, "more sequences or heads than a launch has blocks for",
                                 TW_SMALLER};
inline constexpr Rule far_parts{"amd-operand-size", TW_LIMIT, "one head of all splits, or of o, spans 2 GiB or more",
                                TW_SMALLER};
inline constexpr Rule many_parts{"amd-splits", TW_LIMIT,
                                 "{num_splits} splits, and the kernel is for at most {most_parts}", "use a larger one"};
inline constexpr Rule odd_combined_rows{"amd-rows", TW_DIVISIBILITY, "{seqlen_q} rows are not a multiple of 8",
                                        TW_PADDED};
inline constexpr Rule odd_combined_heads{"amd-heads", TW_DIVISIBILITY,
                                         "heads of {head_dim_v} are not a multiple of {tile_n1}", TW_PADDED};
inline constexpr Rule unaligned_o{"amd-alignment", TW_ALIGNMENT,
                                  "an address or a stride of o is not a multiple of 16 bytes", TW_PADDED};
inline constexpr Rule new_lengths{"amd-lengths", TW_LIMIT,
                                  "sequences have different numbers of new rows: CK Tile takes one", TW_LOOPS};
inline constexpr Rule odd_rotary{"amd-rotary", TW_ALIGNMENT, "{rotary_dim} rotary elements are not a multiple of 16",
                                 TW_LOOPS};
inline constexpr Rule small_pages{"amd-pages", TW_LIMIT, "pages of {page_size} slots, and a block writes {tile_n0}",
                                  TW_LOOPS};
inline constexpr Rule appended_heads{"amd-heads", TW_DIVISIBILITY,
                                     "head_dim {head_dim} is not a multiple of the tile, {tile_k0}", TW_PADDED};
inline constexpr Rule appended_heads_v{"amd-heads", TW_DIVISIBILITY,
                                       "head_dim_v {head_dim_v} is not a multiple of the tile, {tile_n1}", TW_PADDED};
inline constexpr Rule unaligned_cache{"amd-alignment", TW_ALIGNMENT,
                                      "heads, a stride or an address are not a multiple of 16 bytes", TW_LOOPS};

inline bool whole(int64_t x, int64_t y, int64_t z, int64_t width) { return !(x % width || y % width || z % width); }

inline const Rule *broken_features(const Schedule &s, const AttentionProblem &p) {
  if (p.seqlens_q) return &row_lengths;
  if (p.seqlens_k && !p.varlen && s.route == forward) return &key_lengths;
  if (p.varlen && (s.route == paged || s.route == split) && p.pages != kNoPages && !p.seqlens_k) return &no_key_lengths;
  if (p.bias == kBiasTensor && p.bias_keys != p.seqlen_k) return &repeated_bias;
  if (p.bias == kAlibi && s.route != split && p.seqlen_q + p.seqlen_k > kMostPlaces) return &far_alibi;
  if (s.route == prefill) return p.page_size != 1 ? &pool_pages : nullptr;
  return p.pages != kNoPages && p.page_size % s.tile_n0 ? &odd_pages : nullptr;
}

inline const Rule *broken_edges(const Schedule &s, const Attention &a) {
  const AttentionProblem &p = a.p;
  if (!s.pad_rows && p.varlen) return &any_rows;
  if (!s.pad_rows && p.seqlen_q % s.tile_m0) return &odd_rows;
  if (!s.pad_keys && s.route != split && (p.varlen || p.seqlens_k)) return &any_keys;
  if (!s.pad_keys && s.route != split && p.seqlen_k % s.tile_n0) return &odd_keys;
  if (p.seqlen_k == 0 && !a.bounded && (!s.pad_keys || s.pipeline == qs)) return &no_keys;
  if ((s.pipeline == qr_async || !s.pad_head) && p.head_dim != s.tile_k0max)
    return s.pipeline == qr_async ? &async_heads : &odd_heads;
  return !s.pad_head_v && p.head_dim_v != s.tile_n1 ? &odd_heads_v : nullptr;
}

inline const Rule *broken_alignment(const Schedule &s, const AttentionProblem &p) {
  const int64_t width = 16 / p.size_q;
  const bool of_q = whole(p.q_batch, p.q_row, p.q_head, width) && whole(p.k_batch, p.k_row, p.k_head, width);
  const bool of_v = whole(p.v_batch, p.v_row, p.v_head, width) && whole(p.o_batch, p.o_row, p.o_head, width);
  const bool odd_q = p.head_dim % width || !of_q || !p.aligned, odd_v = p.head_dim_v % width || !of_v || !p.aligned;
  if (!(s.loaded && s.pad_head) && odd_q) return &unaligned_qk;
  return !(s.loaded && s.pad_head_v) && odd_v ? &unaligned_v : nullptr;
}

inline const Rule *broken_spans(const Schedule &s, const AttentionProblem &p) {
  const int64_t strides[] = {p.q_batch, p.q_row, p.q_head, p.k_batch, p.k_row, p.k_head,
                             p.v_batch, p.v_row, p.v_head, p.o_batch, p.o_row, p.o_head};
  for (int64_t stride : strides)
    if (stride > kMost || stride < 0) return &far_strides;
  if (p.seqlen_k > kMost || p.seqlen_q > kMost) return &far_strides;
  const Wide rows = p.seqlen_q + s.tile_m0;
  const Wide keys = s.route == prefill ? p.page_count : p.pages != kNoPages ? p.page_size : p.seqlen_k + s.tile_n0;
  const int64_t k = s.route == prefill ? p.k_batch : p.k_row, v = s.route == prefill ? p.v_batch : p.v_row;
  const Wide reaches[] = {rows * p.q_row * p.size_q, rows * p.o_row * p.size_out, keys * k * p.size_q,
                          keys * v * p.size_q};
  for (Wide reach : reaches)
    if (reach >= kMostBytes) return &far_heads;
  const int64_t tiles = ceil_div(p.seqlen_q, s.tile_m0) * larger(1, s.route == split ? p.num_splits : 1);
  return larger(larger(p.batch, p.heads_q), tiles) > kMostBlocks ? &many_tiles : nullptr;
}

inline bool fits(int64_t x, int64_t y, int64_t z) {
  return x >= 0 && y >= 0 && z >= 0 && larger(larger(x, y), z) <= kMost;
}

// Parts lie dense, one behind the other, each as o would lie.
inline const Rule *broken_parts(const Attention &a) {
  const AttentionProblem &p = a.p;
  const Wide part = a.elements_o(), rows = Wide(p.seqlen_q) + kCombineRows;
  if (part > kMost || p.seqlen_q > kMost || !fits(p.o_batch, p.o_row, p.o_head)) return &far_strides;
  const Wide reached = (p.num_splits + 4) * part + rows * p.heads_q * p.head_dim_v;
  return reached * 4 >= kMostBytes || rows * p.o_row * 4 >= kMostBytes ? &far_parts : nullptr;
}

inline const Rule *combine_limits(const Schedule &s, const Attention &a) {
  const AttentionProblem &p = a.p;
  if (p.seqlens_q) return &row_lengths;
  if (p.num_splits > s.most_parts) return &many_parts;
  if (!s.pad_rows && (p.varlen || p.seqlen_q % kCombineRows)) return &odd_combined_rows;
  if (!s.pad_head_v && p.head_dim_v % s.tile_n1) return &odd_combined_heads;
  if (!s.pad_head_v && !(whole(p.o_batch, p.o_row, p.o_head, kWidth) && p.aligned)) return &unaligned_o;
  if (larger(p.batch, p.heads_q) > kMostBlocks) return &many_heads;
  return broken_parts(a);
}

// Caches, and rows of q that are rotated; new rows of keys and values lie as they like.
inline const Rule *broken_caches(const Schedule &s, const AttentionProblem &p) {
  if (!fits(p.k_batch, p.k_row, p.k_head) || !fits(p.v_batch, p.v_row, p.v_head) || !fits(p.seqlen_q, p.seqlen_k, 0))
    return &far_strides;
  if (p.rotary_q && (!fits(p.q_batch, p.q_row, p.q_head) || !fits(p.o_batch, p.o_row, p.o_head))) return &far_strides;
  const Wide rows = Wide(p.seqlen_q) + s.tile_m0, keys = Wide(p.pages != kNoPages ? p.page_size : p.seqlen_k) + 64;
  const Wide reaches[] = {keys * p.k_row * p.size_q,
                          keys * p.v_row * p.size_q,
                          rows * p.heads_kv * p.head_dim * p.size_q,
                          rows * p.heads_kv * p.head_dim_v * p.size_q,
                          p.rotary_q ? rows * p.o_row * p.size_q : 0,
                          Wide(p.seqlen_k) * p.rotary_dim};
  for (Wide reach : reaches) {
    if (reach >= kMostBytes) return &far_heads;
  }
  return nullptr;
}

inline const Rule *append_limits(const Schedule &s, const AttentionProblem &p) {
  if (p.seqlens_q) return &new_lengths;
  if (p.rotary_dim % 16) return &odd_rotary;
  if (p.pages != kNoPages && p.page_size < s.tile_n0) return &small_pages;
  if (!s.pad_rows && p.rotary_q && p.seqlen_q % s.tile_m0) return &odd_rows;
  if (!s.pad_head && p.head_dim != s.tile_k0) return &appended_heads;
  if (!s.pad_head_v && p.head_dim_v != s.tile_n1) return &appended_heads_v;
  const bool lie = whole(p.k_batch, p.k_row, p.k_head, kWidth) && whole(p.v_batch, p.v_row, p.v_head, kWidth) &&
                   (!p.rotary_q || whole(p.q_batch, p.q_row, p.q_head, kWidth));
  if (p.head_dim % kWidth || p.head_dim_v % kWidth || !lie || !p.aligned) return &unaligned_cache;
  if (larger(p.batch, p.heads_q) > kMostBlocks) return &many_heads;
  return broken_caches(s, p);
}

inline const Rule *limits(const Schedule &s, const Attention &a) {
  const AttentionProblem &p = a.p;
  if (!(p.batch && p.seqlen_q && p.heads_q)) return nullptr;
  if (s.route == combine) return combine_limits(s, a);
  if (s.route == append) return append_limits(s, p);
  const Rule *rule = broken_features(s, p);
  if (rule == nullptr) rule = broken_edges(s, a);
  if (rule == nullptr) rule = broken_alignment(s, p);
  return rule == nullptr ? broken_spans(s, p) : rule;
}

}  // namespace ck_tile
}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
