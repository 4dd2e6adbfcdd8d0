/* The arguments of a GEMM kernel.  The Python mirror is tilewright/runtime/bindings/gemm/args.py. */
#ifndef TILEWRIGHT_GEMM_ARGS_H
#define TILEWRIGHT_GEMM_ARGS_H

#include <tilewright/abi.h>

#define TW_MAX_D 4

/* E = epilogue(alpha * A.B + beta * C, D0, D1, ...), batched.
 *
 * A is m x k, B is k x n; each is row- or column-major as the kernel's layout says, with a leading
 * stride in elements.  C and E are m x n row-major.  A D tensor has a row and a column stride, so a
 * bias vector is a D with one of them 0.  A batch stride of 0 broadcasts.  For a kernel
 * that takes B packed, `b` points at the buffer that `pack` filled and its strides are ignored (a batch stride
 * of 0 still means one matrix for all).  E may be C itself. */
typedef struct tw_gemm_args {
  int64_t m, n, k, batch;
  const void *a;
  const void *b;
  const void *c; /* may be null when beta is 0 */
  const void *d[TW_MAX_D];
  void *e;
  int64_t a_stride, b_stride, c_stride, e_stride;
  int64_t d_row_stride[TW_MAX_D], d_col_stride[TW_MAX_D];
  int64_t a_batch_stride, b_batch_stride, c_batch_stride, e_batch_stride;
  int64_t d_batch_stride[TW_MAX_D];
  double alpha, beta;
  const void *b_up; /* of a dual kernel, whose E is activation(alpha * A.B) * A.B_up: the layout and strides of B */
} tw_gemm_args;

#endif
