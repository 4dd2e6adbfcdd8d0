// What kernels of attention and of its gradients have in common, whatever their backend: which rows and keys a sequence
// has, which keys a row sees, which entries dropout keeps.
//
// `Args` are the arguments of either op: their fields have the same names and meaning (attention_args.h).
#pragma once
#include <tilewright/abi.h>
#include <tilewright/philox.h>

namespace tw {

enum class AttentionMask { none, window, generic };  // generic: a window, and first keys that are always seen
enum class AttentionBias { none, tensor, alibi };

TW_BOTH int64_t table_entry(const void *table, int64_t index) { return static_cast<const int32_t *>(table)[index]; }

struct Span {
  int64_t begin, end;
  TW_BOTH int64_t size() const { return end > begin ? end - begin : 0; }
};

// Rows and keys of a sequence, and where they begin among the packed ones.
struct AttentionSequence {
  int64_t index, first_row, rows, first_key, keys;
};

template <class Args> TW_BOTH void rows_of(const Args &x, AttentionSequence &s) {
  s.first_row = x.starts_q ? table_entry(x.starts_q, s.index) : 0;
  s.rows = x.lengths_q  ? table_entry(x.lengths_q, s.index)
           : x.starts_q ? table_entry(x.starts_q, s.index + 1) - s.first_row
                        : x.rows;
}
// Rows and keys of a sequence whose keys lie in no pages.
template <class Args> TW_BOTH AttentionSequence sequence_in_rows(const Args &x, int64_t index) {
  AttentionSequence s{index, 0, 0, 0, 0};
  rows_of(x, s);
  s.first_key = x.starts_k ? table_entry(x.starts_k, index) : 0;
  s.keys = x.lengths_k  ? table_entry(x.lengths_k, index)
           : x.starts_k ? table_entry(x.starts_k, index + 1) - s.first_key
                        : x.keys;
  return s;
}

// -- what a row sees ---------------------------------------------------------------------------------------------------

template <class Args> TW_BOTH bool window_bounded(const Args &x) { return x.window_left >= 0 || x.window_right >= 0; }
// How far keys are ahead of rows where the window is laid.
template <class Args> TW_BOTH int64_t window_shift(const Args &x, const AttentionSequence &s) {
  return x.bottom_right ? s.keys - s.rows : 0;
}
template <class Args> TW_BOTH int64_t alibi_shift(const Args &x, const AttentionSequence &s) {
  return x.bottom_right || !window_bounded(x) ? s.keys - s.rows : 0;
}
// The keys of the window around a row; the first `sinks_of` of the sequence are seen besides, as far as its end.
template <class Args> TW_BOTH Span window_of(const Args &x, const AttentionSequence &s, int64_t row) {
  const int64_t middle = row + window_shift(x, s);
  Span seen{0, s.keys};
  if (x.window_left >= 0 && middle - x.window_left > 0) seen.begin = middle - x.window_left;
  if (x.window_right >= 0 && middle + x.window_right + 1 < s.keys) seen.end = middle + x.window_right + 1;
  if (seen.end < 0) seen.end = 0;
  if (seen.begin > seen.end) seen.begin = seen.end;
  return seen;
}
// Keys before the window that are seen: the first of these many.
template <class Args> TW_BOTH int64_t sinks_before(const Args &x, const Span &seen) {
  return x.sink_keys < seen.begin ? x.sink_keys : seen.begin;
}

// -- dropout -----------------------------------------------------------------------------------------------------------

TW_BOTH uint64_t whole_of(const double (&halves)[2]) {
  return uint64_t(uint32_t(int64_t(halves[0]))) | uint64_t(uint32_t(int64_t(halves[1]))) << 32;
}
template <class Args> TW_BOTH Dropout dropout_of(const Args &x) {
  if (!x.seed_at) return Dropout::of(x.dropout, whole_of(x.seed), whole_of(x.offset));
  const uint64_t *at = static_cast<const uint64_t *>(x.seed_at);
  return Dropout::of(x.dropout, at[0], at[1]);
}

// -- what is refused ---------------------------------------------------------------------------------------------------

// Nothing is written; kernels need not think of it.
template <class Args> bool no_rows(const Args &x) { return x.batch == 0 || x.heads_q == 0 || x.rows == 0; }

// What tables hold, where the host can read them: TW_OK, or which table is wrong.
inline int wrong_rows(const void *starts, const void *lengths, int64_t batch, int64_t most, int64_t total,
                      int starts_at, int lengths_at) {
  for (int64_t b = 0; b < batch; ++b) {
    int64_t there = most;
    if (starts) {
      const int64_t first = table_entry(starts, b), next = table_entry(starts, b + 1);
      if (first < 0 || next < first || next > total) return starts_at;
      there = next - first;
    }
    if (there > most) return starts_at;
    if (lengths && (table_entry(lengths, b) < 0 || table_entry(lengths, b) > there)) return lengths_at;
  }
  return TW_OK;
}

}  // namespace tw
