// What the fast attention kernels read of their arguments: the sequences, where their rows lie, and who sees what.
#pragma once
#include <tilewright/attention_rules.h>

#include <tilewright/cpu/primitives/convert.h>

namespace tw {

// One sequence of the batch, and what its rows see.
struct Sequence : AttentionSequence {
  int64_t shift, beside;  // row i stands beside key i + shift; for ALiBi beside another

  __attribute__((noinline)) Sequence(const tw_attention_args &x, int64_t b)
      : AttentionSequence(sequence_of(x, b)), shift(window_shift(x, *this)), beside(alibi_shift(x, *this)) {}

  // Row i sees keys from <= j < to, and those below the sinks and `to`.
  TW_INLINE int64_t from(const tw_attention_args &x, int64_t i) const {
    return x.window_left < 0 ? 0 : least(keys, most(0, i + shift - x.window_left));
  }
  TW_INLINE int64_t to(const tw_attention_args &x, int64_t i) const {
    return x.window_right < 0 ? keys : least(keys, most(0, i + shift + x.window_right + 1));
  }
};

// Keys (or values) of one head of one sequence: where row j is, in pages or not.
template <class T> struct Rows {
  const T *base;
  int64_t row, page;
  const int32_t *table;  // of this sequence; null without pages
  int64_t size;

  TW_INLINE Rows(const tw_attention_args &x, const Sequence &s, const void *operand,
                 const tw_attention_strides &strides, int64_t head)
      : base(static_cast<const T *>(operand) + head * strides.head),
        row(strides.row),
        page(strides.batch),
        table(static_cast<const int32_t *>(x.pages.table)),
        size(x.pages.size) {
    if (table) table += x.pages.indptr ? table_entry(x.pages.indptr, s.index) : s.index * x.pages.stride;
    else base += s.index * strides.batch + s.first_key * row;
  }
  TW_INLINE const T *at(int64_t j) const {
    return table ? base + table[j / size] * page + j % size * row : base + j * row;
  }
  // Pointers to rows j0 to j1.
  __attribute__((noinline)) void list(int64_t j0, int64_t j1, const T **to) const {
    if (!table) {
      for (int64_t j = j0; j < j1; ++j) *to++ = base + j * row;
      return;
    }
    for (int64_t j = j0; j < j1;) {
      int64_t slot = j % size, some = least(size - slot, j1 - j);
      const T *from = base + table[j / size] * page + slot * row;
      for (int64_t t = 0; t < some; ++t) *to++ = from + t * row;
      j += some;
    }
  }
};

// The rows of all query heads that read one head of keys, numbered head by head: one matrix.
struct Packed {
  int64_t group, heads, rows;  // query heads of a head of keys; heads of keys; rows of the sequence

  TW_INLINE Packed(const tw_attention_args &x, const Sequence &s)
      : group(x.heads_q / x.heads_kv), heads(x.heads_kv), rows(s.rows) {}
  TW_INLINE int64_t total() const { return group * rows; }
  TW_INLINE int64_t head(int64_t kv_head, int64_t r) const { return kv_head * group + r / rows; }
  TW_INLINE int64_t row(int64_t r) const { return r % rows; }
};

template <class T> TW_INLINE const T *q_row(const tw_attention_args &x, const Sequence &s, int64_t head, int64_t i) {
  const tw_attention_strides &at = x.q_strides;
  return static_cast<const T *>(x.q) + s.index * at.batch + (s.first_row + i) * at.row + head * at.head;
}
template <class T> TW_INLINE T *o_row(const tw_attention_args &x, const Sequence &s, int64_t head, int64_t i) {
  const tw_attention_strides &at = x.o_strides;
  return static_cast<T *>(x.o) + s.index * at.batch + (s.first_row + i) * at.row + head * at.head;
}
TW_INLINE float *lse_at(const tw_attention_args &x, const Sequence &s, int64_t head, int64_t i) {
  return static_cast<float *>(x.lse) + s.index * x.lse_batch + head * x.lse_head + s.first_row + i;
}
TW_INLINE float slope_of(const tw_attention_args &x, const Sequence &s, int64_t head) {
  return static_cast<const float *>(x.alibi)[s.index * x.alibi_batch + head * x.alibi_head];
}
TW_INLINE int64_t at_strides(const int64_t (&strides)[4], const Sequence &s, int64_t head, int64_t i, int64_t j) {
  return s.index * strides[0] + head * strides[1] + i * strides[2] + j * strides[3];
}

// A line of a bias or a mask for `count` keys, the other lanes anything.  Out of line: whether they lie side by side is
// evaluated once a line, and unrolled in every place it would be compiled for longer than all else.
template <class Bias> __attribute__((noinline)) vf biases(const Bias *from, int64_t stride, int64_t count) {
  if (stride == 1) return load_as_float(from, count);
  float part[lanes];
#pragma GCC unroll 1
  for (int64_t l = 0; l < lanes; ++l) part[l] = to_float(from[least(l, count - 1) * stride]);
  return load_f(part);
}
__attribute__((noinline)) inline vu mask_bytes(const uint8_t *from, int64_t stride, int64_t count) {
  if (stride == 1 && count >= lanes) return widen_bytes(from);
  uint32_t part[lanes];
#pragma GCC unroll 1
  for (int64_t l = 0; l < lanes; ++l) part[l] = from[least(l, count - 1) * stride];
  return load_u(part);
}

// The keys any row of a matrix sees: the sinks, and those of the windows; one segment where they meet.
struct Segments {
  int64_t from[2], to[2];

  TW_INLINE Segments(int64_t sinks, int64_t first, int64_t end) : from{0, first / 2 * 2}, to{least(sinks, end), end} {
    if (to[0] < from[1]) return;
    to[0] = from[1] = 0;
  }
};

// Whether scores meet more than their scale and the window.
template <class Config> constexpr bool touched =
    Config::softcap || Config::masked || Config::bias != AttentionBias::none;

// Whether some row of a sequence may see less of it than another.
template <class Config> constexpr bool bounded = Config::mask != AttentionMask::none;

// What the fast kernels leave to the loops; backends/cpu/attention/space.py says the same of a signature.
template <class Config> constexpr bool plain_enough = Config::family == AttentionFamily::forward && !Config::dropout &&
                                                      Config::scales == AttentionScales::none &&
                                                      Config::pages != AttentionPages::vectorised;

}  // namespace tw
