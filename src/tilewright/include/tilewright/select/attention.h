// An attention as selection sees it, what follows from its numbers, and the rules by which kernels refuse one.
#pragma once
#include <tilewright/select/attention_pairs.h>
#include <tilewright/select/fields.h>
#include <tilewright/select/rules.h>

namespace tw {
namespace selection {

// Words are numbers of the enums below; `size_*` bytes of an element; strides are in elements: sequence (or page), row,
// head.  Sizes of a bias or a mask are 1 where it repeats, and where there is none.
// clang-format off
#define TW_SELECT_ATTENTION_PROBLEM(X) \
  X(family) X(batch) X(heads_q) X(heads_kv) X(seqlen_q) X(seqlen_k) X(head_dim) X(head_dim_v) X(type_q) X(size_q) \
  X(size_kv) X(size_out) X(size_aux) X(bottom_right) X(window_left) X(window_right) X(sink_tokens) X(bias) \
  X(bias_batch) X(bias_heads) X(bias_rows) X(bias_keys) X(masked) X(mask_batch) X(mask_heads) X(mask_rows) \
  X(mask_keys) X(softcap) X(varlen) X(total_q) X(total_k) X(seqlens_q) X(seqlens_k) X(pages) X(page_lookup) \
  X(page_size) X(page_count) X(num_splits) X(rotary_dim) X(rotary_q) X(q_batch) X(q_row) X(q_head) X(k_batch) \
  X(k_row) X(k_head) X(v_batch) X(v_row) X(v_head) X(o_batch) X(o_row) X(o_head) X(aligned)
// clang-format on
TW_SELECT_STRUCT(AttentionProblem, int, TW_SELECT_ATTENTION_PROBLEM)

// In the order of the words in ops/attention/spec.py.
enum AttentionKind : int64_t { kForward, kSplit, kCombine, kAppend };
enum AttentionBiasKind : int64_t { kNoBias, kBiasTensor, kAlibi };
enum AttentionPageKind : int64_t { kNoPages, kStridedPages, kVectorisedPages };
enum AttentionLookupKind : int64_t { kNoLookup, kPageTable, kPageIndices };
enum AttentionType : int64_t { kFp32, kFp16, kBf16, kE4m3, kE4m3Fnuz };

inline double ratio(Wide x, Wide y) { return double(x) / double(y); }

// A problem with what follows from it.
struct Attention {
  using Problem = AttentionProblem;
  static const char *names() { return AttentionProblem_names(); }
  const AttentionProblem &p;
  bool bounded, packed_keys;
  int64_t group;      // query heads of a head of keys
  Wide pairs;         // rows and keys that see each other, over sequences and heads; of different lengths about as many
  Wide flops, moved;  // multiplications and additions; bytes: each operand read once, the result written once

  explicit Attention(const AttentionProblem &given)
      : p(given),
        bounded(p.window_left >= 0 || p.window_right >= 0),
        packed_keys(p.varlen && p.pages == kNoPages && p.family != kAppend),
        group(p.heads_q / larger(1, p.heads_kv)),
        pairs(Wide(p.batch) * p.heads_q * seen_by_head()),
        flops(operations()),
        moved(bytes()) {}

  // Pairs of one sequence and head, in closed form.
  Wide seen_by_head() const {
    const int64_t batch = larger(1, p.batch);
    const int64_t rows = p.varlen ? p.total_q / batch : p.seqlen_q, keys = packed_keys ? p.total_k / batch : p.seqlen_k;
    return seen_pairs(rows, keys, p.bottom_right, p.window_left, p.window_right, p.sink_tokens);
  }
  Wide rows_of_all() const { return p.varlen ? Wide(p.total_q) : Wide(p.batch) * p.seqlen_q; }
  Wide elements_q() const { return rows_of_all() * p.heads_q * p.head_dim; }
  Wide elements_o() const { return rows_of_all() * p.heads_q * (p.family == kAppend ? p.head_dim : p.head_dim_v); }

  Wide operations() const {
    if (p.family == kAppend)
      return Wide(3) * p.batch * p.seqlen_q * (p.heads_kv + p.heads_q * p.rotary_q) * p.rotary_dim;
    if (p.family == kCombine) return 2 * p.num_splits * elements_o();
    return 2 * pairs * (p.head_dim + p.head_dim_v);
  }

  Wide bytes() const {
    const Wide parts = 4 * p.num_splits * elements_o(), written = elements_o() * p.size_out;
    if (p.family == kCombine) return parts + written;
    if (p.family == kAppend) {
      const Wide rows = Wide(p.batch) * p.seqlen_q * p.heads_kv * (p.head_dim + p.head_dim_v);
      return rows * (p.size_q + p.size_kv) + (p.rotary_q ? 2 * elements_q() * p.size_q : 0);
    }
    const Wide keys = packed_keys ? Wide(p.total_k) : Wide(p.batch) * p.seqlen_k;
    Wide read = keys * p.heads_kv * (p.head_dim + p.head_dim_v) * p.size_kv + elements_q() * p.size_q;
    if (p.bias == kBiasTensor) read += Wide(p.bias_batch) * p.bias_heads * p.bias_rows * p.bias_keys * p.size_aux;
    if (p.masked) read += Wide(p.mask_batch) * p.mask_heads * p.mask_rows * p.mask_keys;
    return read + (p.family == kSplit ? parts : written);
  }
};

inline const char *names_of(const Attention &) { return AttentionProblem_names(); }
inline const AttentionProblem &numbers_of(const Attention &a) { return a.p; }

// An attention with what its cost is counted in.
template <class Rates, class Arch> struct AttentionQuery {
  const Attention &a;
  const Rates &rate;
  const Arch &arch;
  const Host &host;
  static AttentionQuery of(const Attention &attention, const Rates &rate, const Arch &arch, const Host &host) {
    return {attention, rate, arch, host};
  }
  const Attention &problem() const { return a; }
};

// Whether sequences may have lengths of their own.
inline bool lengths_differ(const AttentionProblem &p) {
  return p.batch > 1 && (p.seqlens_k || p.varlen || p.page_lookup == kPageIndices);
}

}  // namespace selection
}  // namespace tw
