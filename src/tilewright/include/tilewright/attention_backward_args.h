/* The arguments of the kernels of attention's gradients, one struct a stage.  The Python mirror is
 * tilewright/runtime/bindings/attention_backward/args.py.
 *
 *   dot      delta = rowsum(dout * out) - dlse of every row, lse in powers of two, and the gradient of sink logits
 *   grad     dq, dk, dv, and the gradients of a bias and of ALiBi's slopes
 *   convert  fp32 accumulators that `grad` wrote, reduced over splits, scaled and rounded to the type of dq, dk and dv
 *
 * With s, p = softmax(s) and lse as attention_args.h defines them, z what dropout multiplies an entry of p by:
 *
 *   dp = z (dout . v)        ds = p (dp - delta)        dv = sum over rows of z p dout
 *   g  = ds (1 - (s' / softcap)^2), s' the capped score before what is added to it; ds without a cap
 *   dq = scale * sum over keys of g k        dk = scale * sum over rows of g q
 *   dbias = ds, summed over what the bias repeats along        dalibi = - sum of ds |i + delta' - j|
 *   dsink = - sum over rows of exp(sink - lse) delta
 *
 * Fields that attention_args.h has too mean the same: sizes, lengths, packed rows, windows, masks, dropout.
 *
 * What is written.  Every element of dq, dk, dv, dbias, dsink and dalibi: those of rows and keys that no sequence has,
 * or that see nothing, are 0.  Memory after a sequence's last row or key is not read, and may be NaN.
 *
 * Prepared rows.  `dot` writes two fp32 numbers per row and head for `grad`: delta, and lse * log2(e), which is plus
 * infinity where a row sees nothing (its lse is minus infinity), so that exp2(score * log2(e) - it) is 0 and never the
 * difference of two infinities.  Row i of sequence b is at b * prepared_batch + head * prepared_head + first + i.  first
 * is 0, or where rows are packed (starts_q[b] / R + b) * R with R = TW_ATTENTION_BACKWARD_ROWS: the rows of every
 * sequence and head begin at a multiple of R, and there is room for a whole number of R.  After a sequence's last row,
 * to the next multiple of R, delta is 0 and the other plus infinity: `grad` may compute these rows as if they were some.
 */
#ifndef TILEWRIGHT_ATTENTION_BACKWARD_ARGS_H
#define TILEWRIGHT_ATTENTION_BACKWARD_ARGS_H

#include <tilewright/attention_args.h>

enum { TW_ATTENTION_BACKWARD_ROWS = 128 };

typedef struct tw_attention_backward_dot_args {
  int64_t batch, heads_q, rows, head_v, total_rows;
  const void *out, *dout; /* of one element type */
  tw_attention_strides out_strides, dout_strides;
  const void *lse;                                    /* fp32, natural logarithms */
  const void *dlse;                                   /* fp32; null where lse has no gradient */
  int64_t lse_batch, lse_head, dlse_batch, dlse_head; /* rows are contiguous, as attention_args.h says of lse */
  const void *starts_q, *lengths_q;
  void *delta, *lse_log2; /* prepared rows */
  int64_t prepared_batch, prepared_head;
  const void *sink;      /* fp32, one a query head; null where it has no gradient */
  void *dsink;           /* fp32, likewise */
  void *cleared;         /* memory that `grad` adds to and this kernel sets to 0; null: none.  It begins and ends at */
  int64_t cleared_bytes; /* multiples of 16 bytes.  Kernels of CPUs and AMD GPUs have none */
} tw_attention_backward_dot_args;

/* Where the kernel's signature says so (`accumulate`), dq, or dk and dv, are no results but fp32 accumulators for
 * `convert`, unscaled, with rows in the layout of `prepared` ones (of keys by starts_k) and contiguous heads.  The kernel
 * sets them to zero itself; those of dq may be zero already (dq_cleared).  Accumulators of dk and dv have `dkv_heads`
 * heads: a multiple of heads_kv, heads_q where each query head has its own.  `convert` reduces those of one KV head; the
 * kernel decides what it adds to which of them.
 *
 * deterministic: every result is accumulated in an order that follows from these numbers alone. */
typedef struct tw_attention_backward_args {
  int64_t batch, heads_q, heads_kv, rows, keys, head_qk, head_v;
  int64_t total_rows, total_keys;
  const void *q, *k, *v, *dout;
  void *dq, *dk, *dv;
  tw_attention_strides q_strides, k_strides, v_strides, dout_strides, dq_strides, dk_strides, dv_strides;
  const void *delta, *lse_log2; /* prepared rows */
  int64_t prepared_batch, prepared_head, dkv_heads, deterministic;
  const void *lse; /* as `dot` has it: who computes in fp32 subtracts it from scores as they are, which loses nothing */
  int64_t lse_batch, lse_head;
  const void *starts_q, *starts_k;
  const void *lengths_q, *lengths_k;
  int64_t window_left, window_right, bottom_right, sink_keys;
  const void *mask; /* bytes */
  const void *bias;
  int64_t mask_strides[4], bias_strides[4]; /* sequence, head, row, key; 0 repeats */
  void *dbias;                              /* fp32; null where it is not asked for */
  int64_t dbias_strides[4];                 /* 0 where the bias is broadcast: gradients are added there */
  const void *alibi;                        /* fp32 slopes */
  void *dalibi;                             /* fp32; null where it is not asked for */
  int64_t alibi_batch, alibi_head, dalibi_batch, dalibi_head; /* a stride of 0 along sequences: added over them */
  const void *seed_at;
  double scale, softcap, dropout, seed[2], offset[2];
  int64_t dq_cleared; /* accumulators of dq are 0: the `dot` right before it on the stream cleared them */
} tw_attention_backward_args;

/* to = factor * source, reduced over `parts` splits: those of head h begin at head `h * parts` of source.  The factor is
 * `scale` of dq and dk, 1 of dv.  Null: the kernel before wrote this result itself.  Rows of `source` have the layout of
 * prepared ones. */
typedef struct tw_attention_backward_sums {
  const void *source; /* fp32 */
  void *to;
  int64_t parts;
  tw_attention_strides source_strides, to_strides;
} tw_attention_backward_sums;

typedef struct tw_attention_backward_convert_args {
  int64_t batch, heads_q, heads_kv, rows, keys, head_qk, head_v;
  int64_t total_rows, total_keys;
  tw_attention_backward_sums dq, dk, dv;
  const void *starts_q, *starts_k;
  const void *lengths_q, *lengths_k;
  double scale;
} tw_attention_backward_convert_args;

#endif
