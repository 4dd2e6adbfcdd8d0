// What every kernel of attention's gradients knows and refuses, whatever its backend.
//
// The Config of a kernel has what its signature says (ops/attention_backward/spec.py):
//   T              element type of q, k, v, out, dout, dq, dk and dv
//   Aux            of the bias tensor
//   family, mask, bias, accumulate                       enums
//   masked, softcap, dropout, packed                     switches
//   dlse, dsink (of dot), dbias, dalibi (of grad)        what it takes or gives besides
//   head_qk, head_v   the largest heads it holds; those of a launch are in its arguments
#pragma once
#include <tilewright/attention_backward_args.h>
#include <tilewright/attention_geometry.h>
#include <tilewright/say.h>

namespace tw {

enum class AttentionBackwardFamily { dot, grad, convert };
// Which results `grad` leaves as fp32 accumulators for `convert`.
enum class AttentionAccumulate { none, dq, dkv, all };

template <AttentionBackwardFamily family> struct attention_backward_args_of {
  using type = tw_attention_backward_args;
};
template <> struct attention_backward_args_of<AttentionBackwardFamily::dot> {
  using type = tw_attention_backward_dot_args;
};
template <> struct attention_backward_args_of<AttentionBackwardFamily::convert> {
  using type = tw_attention_backward_convert_args;
};

// -- prepared rows -----------------------------------------------------------------------------------------------------

constexpr int64_t prepared_rows = TW_ATTENTION_BACKWARD_ROWS;

// Where the prepared rows of a sequence begin, less its batch stride.
TW_BOTH int64_t prepared_first(const void *starts, int64_t sequence) {
  return starts ? (table_entry(starts, sequence) / prepared_rows + sequence) * prepared_rows : 0;
}
TW_BOTH int64_t prepared_end(int64_t rows) { return (rows + prepared_rows - 1) / prepared_rows * prepared_rows; }
// The prepared numbers of a head's rows: row i is at it + i.
template <class Args> TW_BOTH int64_t prepared_at(const Args &x, int64_t sequence, int64_t head) {
  return sequence * x.prepared_batch + head * x.prepared_head + prepared_first(x.starts_q, sequence);
}

// -- rows that no sequence has -----------------------------------------------------------------------------------------

// Rows of memory behind the last of a sequence (and of packed rows before the first sequence's) that are set to 0 with
// it: every row of memory belongs to one sequence.  `room` is what each has where rows are not packed.
struct Unused {
  Span before, behind;
};
TW_BOTH Unused unused_rows(const void *starts, int64_t sequence, int64_t batch, int64_t count, int64_t room,
                           int64_t total) {
  if (!starts) return {{0, 0}, {count, room}};
  const int64_t first = table_entry(starts, sequence);
  const int64_t next = sequence + 1 < batch ? table_entry(starts, sequence + 1) : total;
  return {{0, sequence ? 0 : first}, {first + count, next}};
}

// -- what is refused ---------------------------------------------------------------------------------------------------

inline Answer broken_sizes(int64_t batch, int64_t rows, int64_t keys, int64_t heads_q, int64_t heads_kv) {
  if (batch < 0 || rows < 0 || keys < 0) return {TW_BAD_ARGS, "a size is negative"};
  if (heads_q < 1 || heads_kv < 1 || heads_q % heads_kv)
    return {TW_BAD_ARGS, "the query heads are no multiple of the heads of keys"};
  return {};
}
template <class Config> Answer broken_heads(int64_t head_qk, int64_t head_v) {
  if (head_qk < 1 || head_v < 1) return {TW_BAD_ARGS, "a head has no elements"};
  if (head_qk > Config::head_qk || head_v > Config::head_v)
    return {TW_LIMIT, "a head is larger than those the kernel is made for"};
  return {};
}

template <class Config> Answer broken_backward(const tw_attention_backward_dot_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_attention_backward_dot_args &x = *args;
  if (const Answer wrong = broken_sizes(x.batch, x.rows, 0, x.heads_q, x.heads_q); wrong.code) return wrong;
  return broken_heads<Config>(1, x.head_v);
}
template <class Config> Answer broken_backward(const tw_attention_backward_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_attention_backward_args &x = *args;
  if (const Answer wrong = broken_sizes(x.batch, x.rows, x.keys, x.heads_q, x.heads_kv); wrong.code) return wrong;
  if (const Answer wrong = broken_heads<Config>(x.head_qk, x.head_v); wrong.code) return wrong;
  if (Config::mask == AttentionMask::none && (window_bounded(x) || x.sink_keys > 0))
    return {TW_BAD_ARGS, "a window is given and the kernel has none"};
  if (Config::mask == AttentionMask::window && x.sink_keys > 0)
    return {TW_BAD_ARGS, "sink keys are given and the kernel has none"};
  if (x.sink_keys < 0) return {TW_BAD_ARGS, "the number of sink keys is negative"};
  if (!(x.softcap >= 0) || (!Config::softcap && x.softcap != 0)) return {TW_BAD_ARGS, "the soft cap is not one of it"};
  if (!(x.dropout >= 0 && x.dropout < 1)) return {TW_BAD_ARGS, "the chance of dropout is not in 0 to 1"};
  constexpr bool accum =
      Config::accumulate == AttentionAccumulate::dkv || Config::accumulate == AttentionAccumulate::all;
  if (accum ? x.dkv_heads < 1 || x.dkv_heads % x.heads_kv : x.dkv_heads != x.heads_kv)
    return {TW_BAD_ARGS, "the heads of dk and dv are not those of keys, nor, of accumulators, a multiple of them"};
  return {};
}
template <class Config> Answer broken_backward(const tw_attention_backward_convert_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_attention_backward_convert_args &x = *args;
  if (const Answer wrong = broken_sizes(x.batch, x.rows, x.keys, x.heads_q, x.heads_kv); wrong.code) return wrong;
  const tw_attention_backward_sums *const accum[] = {&x.dq, &x.dk, &x.dv};
  for (const tw_attention_backward_sums *one : accum)
    if (one->to && one->parts < 1) return {TW_BAD_ARGS, "a result that is not accumulated has no splits"};
  return broken_heads<Config>(x.head_qk, x.head_v);
}

// TW_OK, or which table is wrong, where the host can read them.
inline int wrong_of_backward(const tw_attention_backward_dot_args &x) {
  using A = tw_attention_backward_dot_args;
  return wrong_rows(x.starts_q, x.lengths_q, x.batch, x.rows, x.total_rows, TW_DATA_IN(A, starts_q),
                    TW_DATA_IN(A, lengths_q));
}
template <class A> int wrong_of_backward(const A &x) {
  const int wrong = wrong_rows(x.starts_q, x.lengths_q, x.batch, x.rows, x.total_rows, TW_DATA_IN(A, starts_q),
                               TW_DATA_IN(A, lengths_q));
  return wrong ? wrong
               : wrong_rows(x.starts_k, x.lengths_k, x.batch, x.keys, x.total_keys, TW_DATA_IN(A, starts_k),
                            TW_DATA_IN(A, lengths_k));
}

}  // namespace tw
