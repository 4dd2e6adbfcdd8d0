/* The Tilewright C ABI: the only definition of what a built library exports.
 *
 * A library holds one kernel (JIT) or many (a bundle, a user's own build); both look the same from
 * outside.  Plain C, so that Python, C++ and any other language read the same header.  The Python
 * mirror (tilewright/runtime/abi.py) is compared with this file by a test that compiles it. */
#ifndef TILEWRIGHT_ABI_H
#define TILEWRIGHT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or the meaning of a field changes; other versions are refused. */
#define TW_ABI_VERSION 1

/* Answers of check and launch.  Zero is success. */
enum tw_status {
  TW_OK = 0,
  TW_BAD_ARGS = 1,     /* a null struct, a negative size, a stride shorter than its row */
  TW_DIVISIBILITY = 2, /* the kernel has no edge code and a size is not a multiple */
  TW_LIMIT = 3,        /* a size this kernel was not made for (gemv with many rows, ...) */
  TW_ALIGNMENT = 4,    /* a pointer or stride is not aligned as the kernel needs */
  TW_DEVICE = 5        /* the device runtime reported an error; its own code may stand above bit 8 */
};

/* On GPUs the first bytes of every workspace are flags: whoever allocates one clears them, and every
 * launch leaves them clear. */
#define TW_WORKSPACE_FLAGS 16384

#define TW_MAX_D 2

/* E = epilogue(alpha * A.B + beta * C, D0, D1), batched.
 *
 * A is m x k, B is k x n; each is row- or column-major as the kernel's layout says, with a leading
 * stride in elements.  C and E are m x n row-major.  A D tensor has a row and a column stride, so a
 * bias vector is a D with one of them 0.  A batch stride of 0 broadcasts.  For a preshuffle kernel
 * `b` points at the buffer that `pack` filled and its strides are ignored.  E may be C itself. */
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
} tw_gemm_args;

/* What `stream` points at for host kernels: a team of threads.  Null means the calling thread only.
 * `run` calls body(context, index, count) for every index below count, on at most `threads`
 * threads, and returns when all are done. */
typedef struct tw_host_team {
  int64_t threads;
  void (*run)(struct tw_host_team *team, int64_t count, void (*body)(void *context, int64_t index, int64_t count),
              void *context);
} tw_host_team;

typedef struct tw_kernel {
  /* JSON: the spec, the target, the versions of the tools. */
  const char *manifest;
  /* 0, or a code and a sentence in `why` (at most `why_bytes` with the closing zero). */
  int (*check)(const void *args, char *why, size_t why_bytes);
  /* Bytes of scratch memory `launch` needs for these args (aligned to 64). `threads` matters to
   * host kernels only. */
  int64_t (*workspace)(const void *args, int64_t threads);
  /* Asynchronous on the stream where the target has streams; allocates nothing. */
  int (*launch)(const void *args, void *workspace, void *stream);
  /* Preshuffle kernels only, null otherwise: the size of the packed B, and the packing itself
   * (reads args->b with its strides, writes `packed`, aligned to 64). */
  int64_t (*packed_bytes)(const void *args);
  int (*pack)(const void *args, void *packed, void *stream);
} tw_kernel;

#ifndef __CUDACC_RTC__ /* which knows no host */
/* Every library exports these two. */
int64_t tw_abi_version(void);
const tw_kernel *tw_kernels(int64_t *count);
#endif

#ifdef __cplusplus
}
#endif
#endif
