// The gradients of an attention as selection sees one of their stages, and what follows from its numbers.
#pragma once
#include <tilewright/select/attention_pairs.h>
#include <tilewright/select/fields.h>
#include <tilewright/select/rules.h>

namespace tw {
namespace selection {

// Words are numbers of the enums below; `size` and `size_aux` bytes of an element; strides are in elements: sequence,
// row, head.  Sizes of a bias or a mask are 1 where it repeats, and where there is none.  `dkv_splits`: accumulators of dk and dv
// per KV head, 1 where there are none.
// clang-format off
#define TW_SELECT_ATTENTION_BACKWARD_PROBLEM(X) \
  X(family) X(batch) X(heads_q) X(heads_kv) X(seqlen_q) X(seqlen_k) X(head_dim) X(head_dim_v) X(type) X(size) \
  X(size_aux) X(bottom_right) X(window_left) X(window_right) X(sink_tokens) X(bias) X(bias_batch) X(bias_heads) \
  X(bias_rows) X(bias_keys) X(masked) X(mask_batch) X(mask_heads) X(mask_rows) X(mask_keys) X(softcap) X(dropout) \
  X(varlen) X(total_q) X(total_k) X(seqlens_q) X(seqlens_k) X(dlse) X(dsink) X(dbias) X(dalibi) X(deterministic) \
  X(accumulate) X(q_batch) X(q_row) X(q_head) X(k_batch) X(k_row) X(k_head) X(v_batch) X(v_row) X(v_head) \
  X(o_batch) X(o_row) X(o_head) X(do_batch) X(do_row) X(do_head) X(dq_batch) X(dq_row) X(dq_head) X(dk_batch) \
  X(dk_row) X(dk_head) X(dv_batch) X(dv_row) X(dv_head) X(aligned) X(dkv_splits)
// clang-format on
TW_SELECT_STRUCT(AttentionBackwardProblem, int, TW_SELECT_ATTENTION_BACKWARD_PROBLEM)

// In the order of the words in ops/attention_backward/spec.py and ops/attention_terms.py.
enum AttentionBackwardKind : int64_t { kDot, kGrad, kConvert };
enum AttentionBackwardBias : int64_t { kNoBackwardBias, kBackwardBiasTensor, kBackwardAlibi };
enum AttentionBackwardType : int64_t { kBackwardFp32, kBackwardFp16, kBackwardBf16 };
enum AttentionBackwardSums : int64_t { kNoSums, kSumsOfDq, kSumsOfDkv, kAllSums };

// A problem with what follows from it.
struct AttentionBackward {
  using Problem = AttentionBackwardProblem;
  static const char *names() { return AttentionBackwardProblem_names(); }
  const AttentionBackwardProblem &p;
  bool bounded;
  int64_t group;      // query heads of a head of keys
  Wide pairs;         // rows and keys that see each other, over sequences and heads; of different lengths about as many
  Wide flops, moved;  // multiplications and additions; bytes: each operand read once, each result written once

  explicit AttentionBackward(const AttentionBackwardProblem &given)
      : p(given),
        bounded(p.window_left >= 0 || p.window_right >= 0),
        group(p.heads_q / larger(1, p.heads_kv)),
        pairs(Wide(p.batch) * p.heads_q * seen_by_head()),
        flops(operations()),
        moved(bytes()) {}

  Wide seen_by_head() const {
    const int64_t batch = larger(1, p.batch);
    return seen_pairs(p.varlen ? p.total_q / batch : p.seqlen_q, p.varlen ? p.total_k / batch : p.seqlen_k,
                      p.bottom_right, p.window_left, p.window_right, p.sink_tokens);
  }
  Wide rows_of_all() const { return (p.varlen ? Wide(p.total_q) : Wide(p.batch) * p.seqlen_q) * p.heads_q; }
  Wide keys_of_all() const { return (p.varlen ? Wide(p.total_k) : Wide(p.batch) * p.seqlen_k) * p.heads_kv; }
  // Elements that are left as fp32 accumulators.
  Wide sums() const {
    const Wide dq = p.accumulate == kSumsOfDq || p.accumulate == kAllSums ? rows_of_all() * p.head_dim : Wide(0);
    const bool dkv = p.accumulate == kSumsOfDkv || p.accumulate == kAllSums;
    return dq + (dkv ? keys_of_all() * p.dkv_splits * (p.head_dim + p.head_dim_v) : Wide(0));
  }
  Wide operations() const {
    if (p.family == kDot) return 2 * rows_of_all() * p.head_dim_v;
    if (p.family == kConvert) return sums();
    return 2 * pairs * (3 * p.head_dim + 2 * p.head_dim_v);
  }
  Wide bytes() const {
    const Wide of_rows = rows_of_all(), of_keys = keys_of_all() * (p.head_dim + p.head_dim_v);
    if (p.family == kDot) return of_rows * (2 * p.head_dim_v * p.size + 8 + 4 * (1 + p.dlse));
    if (p.family == kConvert) return sums() * (4 + p.size);
    Wide found = (of_rows * (2 * p.head_dim + p.head_dim_v) + 2 * of_keys) * p.size + of_rows * 8;
    found += sums() * 4;
    if (p.bias == kBackwardBiasTensor)
      found += Wide(p.bias_batch) * p.bias_heads * p.bias_rows * p.bias_keys * (p.size_aux + 4 * p.dbias);
    if (p.masked) found += Wide(p.mask_batch) * p.mask_heads * p.mask_rows * p.mask_keys;
    return found;
  }
};

inline const char *names_of(const AttentionBackward &) { return AttentionBackwardProblem_names(); }
inline const AttentionBackwardProblem &numbers_of(const AttentionBackward &a) { return a.p; }

// The gradients with what their cost is counted in.
template <class Rates, class Arch> struct AttentionBackwardQuery {
  const AttentionBackward &a;
  const Rates &rate;
  const Arch &arch;
  const Host &host;
  static AttentionBackwardQuery of(const AttentionBackward &attention, const Rates &rate, const Arch &arch,
                                   const Host &host) {
    return {attention, rate, arch, host};
  }
  const AttentionBackward &problem() const { return a; }
};

}  // namespace selection
}  // namespace tw
