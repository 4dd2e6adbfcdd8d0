/* The arguments of attention kernels.  The Python mirror is tilewright/runtime/bindings/attention/args.py.
 *
 * Fields in the words of `tw.attention`: rows is seqlen_q, keys seqlen_k (the longest of a batch: max_seqlen_*), head_qk
 * head_dim, head_v head_dim_v, total_rows and total_keys the tokens of varlen operands, starts_* cu_seqlens_*, lengths_*
 * seqlens_*, pages.table block_table, sink_keys sink_tokens, alibi alibi_slopes, dropout dropout_p, splits num_splits. */
#ifndef TILEWRIGHT_ATTENTION_ARGS_H
#define TILEWRIGHT_ATTENTION_ARGS_H

#include <tilewright/abi.h>

/* In elements; the elements of a head are contiguous.  Element d of head h in row i of sequence b is at
 * b * batch + (start + i) * row + h * head + d, where start is starts[b] of packed rows and 0 of others (packed rows
 * have a batch stride of 0).  In pages, `batch` is from page to page and `row` from slot to slot of one. */
typedef struct tw_attention_strides {
  int64_t batch, row, head;
} tw_attention_strides;

/* fp32 factors of an operand: of head h, in the block of row i of sequence b, at
 * b * batch + h * head + i / block_rows * block.  Null: 1.  Rows count from the start of their sequence. */
typedef struct tw_attention_scales {
  const void *at;
  int64_t batch, head, block, block_rows;
} tw_attention_scales;

/* Keys and values in pages.  Logical page p of sequence b is table[b * stride + p] or, where indptr is given,
 * table[indptr[b] + p]; all of int32.  With indptr the sequence has (pages - 1) * size + last[b] keys, else lengths_k[b].
 * A page is `size` slots by heads by a head's elements, anywhere in memory by the strides of k and v; or vectorised, with
 * vec = 16 / bytes of an element and d elements a head:
 *
 *   k  (page, head, d / vec, slot, vec)     v  (page, head, slot / vec, d, vec)
 *
 * where strides are those of pages and heads only. */
typedef struct tw_attention_pages {
  const void *table, *indptr, *last;
  int64_t stride; /* entries of the table: of one sequence, or with indptr of all */
  int64_t size;   /* slots of a page */
  int64_t count;  /* pages there are: entries are below it */
} tw_attention_pages;

/* forward   o = dropout(softmax(s)) v,  s = cap(scale * q . k) + bias, of the keys a row sees
 * split     the same of each of `splits` splits of the keys, into a workspace; `combine` merges them by their lse
 *
 * Sizes.  `rows` and `keys` are those of every sequence or, where they differ, of the longest.  Sequence b has
 * lengths_q[b] rows where that is given, else starts_q[b + 1] - starts_q[b] where rows are packed, else `rows`; keys
 * likewise, or as its pages say.  Rows after a sequence's last are not written.  Memory after its last key, in pages
 * or not, may hold anything, NaN too, and so may entries of tables for it.  Head h reads the keys of head
 * h / (heads_q / heads_kv).
 *
 * What is seen.  With delta = keys - rows of the sequence where `bottom_right` is set, else 0, row i sees key j where
 * j >= i + delta - window_left or j < sink_keys, and j <= i + delta + window_right; a negative window is unbounded, and
 * without any the whole row is.  A mask of bytes hides key j of row i where it is 0.  A row that sees no key (and has no
 * sink logit) is 0, its lse minus infinity.
 *
 * Scores.  cap(x) = softcap * tanh(x / softcap) where softcap > 0.  Then a bias tensor is added, or ALiBi's
 * -slope * |i + delta' - j|; delta' is delta, or keys - rows where no window is bounded.  `sink` has one logit a query
 * head: one more column of the softmax, with no value.  lse is the natural logarithm of the sum of exponentials, sink
 * included, in fp32.  `scales` multiply the elements of q, k and v.
 *
 * Dropout.  With probability `dropout` an entry of the softmax counts as 0, others are divided by the chance to stay:
 * <tilewright/philox.h> says which.  seed and offset are 64-bit numbers in halves of 32 bits, low half first, each as a
 * double; or they are read from `seed_at` (two of uint64) where that is given, as late as when the kernel runs.
 *
 * Splits.  The kernel decides which keys a split has; every key is in exactly one.  A split kernel writes o in fp32,
 * normalised within its split, and its lse, at offsets of split * o_split and split * lse_split; a split without keys is
 * 0 and minus infinity.  The sink logit belongs to split 0.  Other kernels have splits = 1. */
typedef struct tw_attention_args {
  int64_t batch, heads_q, heads_kv, rows, keys, head_qk, head_v;
  int64_t total_rows, total_keys; /* rows and keys there is memory for, over all sequences that are packed; else 0 */
  const void *q, *k, *v;
  void *o;
  void *lse; /* fp32; null where the kernel gives none */
  tw_attention_strides q_strides, k_strides, v_strides, o_strides;
  int64_t lse_batch, lse_head;       /* rows are contiguous, and begin at starts_q[b] where they are packed */
  const void *starts_q, *starts_k;   /* int32, batch + 1 of each; null where rows are not packed */
  const void *lengths_q, *lengths_k; /* int32, batch of each; null where all have the same, or starts say it */
  tw_attention_pages pages;
  int64_t window_left, window_right, bottom_right, sink_keys;
  const void *sink; /* fp32, one a query head */
  const void *mask; /* bytes */
  const void *bias;
  int64_t mask_strides[4], bias_strides[4]; /* sequence, head, row, key; 0 repeats */
  const void *alibi;                        /* fp32 slopes */
  int64_t alibi_batch, alibi_head;
  tw_attention_scales q_scales, k_scales, v_scales;
  const void *seed_at;
  int64_t splits, o_split, lse_split;
  double scale, softcap, dropout, seed[2], offset[2];
} tw_attention_args;

/* o and lse of all splits (`parts`, `part_lse`: their partial results, in fp32): with weights w_s = exp(lse_s - lse), lse
 * the logarithm of the sum of exp(lse_s), o is the sum of w_s * o_s.  If every lse_s is minus infinity, o is 0 and lse
 * minus infinity. */
typedef struct tw_attention_combine_args {
  int64_t batch, heads_q, rows, head_v, splits, total_rows;
  const void *parts, *part_lse;
  void *o;
  void *lse; /* null where the kernel gives none */
  tw_attention_strides part_strides, o_strides;
  int64_t part_split, part_lse_split, part_lse_batch, part_lse_head;
  int64_t lse_batch, lse_head;
  const void *starts_q, *lengths_q;
} tw_attention_combine_args;

/* Appends new keys and values to those a cache holds: row i of sequence b becomes its key lengths[b] + i.  lengths_new[b]
 * rows are new where that is given, else `rows`; lengths + new is at most `keys` of a cache without pages, and what the
 * table has pages for.  Rotary embedding of k (and of q, if given, into q_out, which may be q) at position
 * p = lengths[b] + i: of each head the first `rotary` elements, in pairs (2 i, 2 i + 1) or, by halves, (i, i + rotary / 2):
 *
 *   a' = a cos - b sin,  b' = b cos + a sin,  with cos and sin of row p, column i
 *
 * v is copied.  A cache of fp8 takes rows of wider types too: what is stored is the row over its scale (`k_scales`,
 * `v_scales`, by the row's position in the sequence), rounded to the nearest, and beyond the largest number to that. */
typedef struct tw_attention_append_args {
  int64_t batch, heads_q, heads_kv, rows, keys, head_qk, head_v;
  const void *k, *v;
  const void *q; /* null where none is rotated */
  void *q_out, *cache_k, *cache_v;
  tw_attention_strides k_strides, v_strides, q_strides, q_out_strides, cache_k_strides, cache_v_strides;
  const void *lengths, *lengths_new; /* int32 */
  tw_attention_pages pages;
  const void *cos, *sin; /* a row for each position */
  int64_t rotary, table_rows, table_stride;
  tw_attention_scales k_scales, v_scales; /* only where a cache of fp8 takes a wider type */
} tw_attention_append_args;

#endif
