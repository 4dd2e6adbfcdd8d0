// What CPU kernels of attention's gradients read of their arguments: where rows lie, who sees what, and zeros.
#pragma once
#include <tilewright/attention_backward_rules.h>

#include <tilewright/cpu/primitives/convert.h>
#include <tilewright/cpu/primitives/team.h>

namespace tw {

// Row i of a sequence, whose rows begin at `first` among packed ones.
template <class T>
TW_INLINE T *row_at(void *base, const tw_attention_strides &strides, int64_t sequence, int64_t row, int64_t head) {
  return static_cast<T *>(base) + sequence * strides.batch + row * strides.row + head * strides.head;
}
template <class T> TW_INLINE const T *row_at(const void *base, const tw_attention_strides &strides, int64_t sequence,
                                             int64_t row, int64_t head) {
  return static_cast<const T *>(base) + sequence * strides.batch + row * strides.row + head * strides.head;
}

// lse of a head's rows, and what is subtracted from their scores: where a row sees nothing (lse is minus infinity), plus
// infinity, so that its weights are 0 and never the difference of two infinities.
template <class Args> TW_INLINE const float *lse_rows(const Args &x, const AttentionSequence &s, int64_t head) {
  return static_cast<const float *>(x.lse) + s.index * x.lse_batch + head * x.lse_head + s.first_row;
}
TW_INLINE float subtracted_lse(float lse) { return lse == -__builtin_inff() ? __builtin_inff() : lse; }

template <class Args> TW_INLINE int64_t entry_at(const int64_t (&strides)[4], const Args &, int64_t sequence,
                                                 int64_t head, int64_t row, int64_t key) {
  return sequence * strides[0] + head * strides[1] + row * strides[2] + key * strides[3];
}

// Rows of a gradient that no sequence has.
template <class T> void zero_rows(void *base, const tw_attention_strides &strides, int64_t sequence, Span rows,
                                  int64_t heads, int64_t size) {
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t head = 0; head < heads; ++head)
      __builtin_memset(row_at<T>(base, strides, sequence, row, head), 0, size_t(size) * sizeof(T));
}

// dq, dk and dv where there is no row or key to write them: behind sequences, and everywhere without any.
template <class T> void zero_unused(const tw_attention_backward_args &x) {
  auto one = [&](void *to, const tw_attention_strides &strides, const void *starts, int64_t sequence, int64_t count,
                 int64_t room, int64_t total, int64_t heads, int64_t size) {
    const Unused unused = unused_rows(starts, sequence, x.batch, count, room, total);
    zero_rows<T>(to, strides, sequence, unused.before, heads, size);
    zero_rows<T>(to, strides, sequence, unused.behind, heads, size);
  };
  for (int64_t b = 0; b < x.batch; ++b) {
    const AttentionSequence s = sequence_in_rows(x, b);
    one(x.dq, x.dq_strides, x.starts_q, b, s.rows, x.rows, x.total_rows, x.heads_q, x.head_qk);
    one(x.dk, x.dk_strides, x.starts_k, b, s.keys, x.keys, x.total_keys, x.heads_kv, x.head_qk);
    one(x.dv, x.dv_strides, x.starts_k, b, s.keys, x.keys, x.total_keys, x.heads_kv, x.head_v);
  }
  if (x.batch || !x.starts_q) return;
  zero_rows<T>(x.dq, x.dq_strides, 0, {0, x.total_rows}, x.heads_q, x.head_qk);
  zero_rows<T>(x.dk, x.dk_strides, 0, {0, x.total_keys}, x.heads_kv, x.head_qk);
  zero_rows<T>(x.dv, x.dv_strides, 0, {0, x.total_keys}, x.heads_kv, x.head_v);
}

}  // namespace tw
