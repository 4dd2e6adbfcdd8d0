/* The Tilewright C ABI: the only definition of what a built library exports.
 *
 * A library holds one kernel (JIT) or many (a bundle, a user's own build); both look the same from
 * outside.  Plain C, so that Python, C++ and any other language read the same header.  Here is what all
 * ops share; the arguments of an op have a header of their own (OP_args.h beside this one, or the op's
 * own folder), which only its kernels see.  The Python mirrors (tilewright/runtime/abi.py, and an op's
 * runtime/bindings/OP/args.py) are compared with these files by a test that compiles them. */
#ifndef TILEWRIGHT_ABI_H
#define TILEWRIGHT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or the meaning of a field changes, here or in the arguments of an op; other
 * versions are refused. */
#define TW_ABI_VERSION 5

/* Answers of check and launch.  Zero is success. */
enum tw_status {
  TW_OK = 0,
  TW_BAD_ARGS = 1,     /* a null struct, a negative size, a stride shorter than its row */
  TW_DIVISIBILITY = 2, /* the kernel has no edge code and a size is not a multiple */
  TW_LIMIT = 3,        /* a size this kernel was not made for (gemv with many rows, ...) */
  TW_ALIGNMENT = 4,    /* a pointer or stride is not aligned as the kernel needs */
  TW_DEVICE = 5,       /* the device runtime reported an error; its own code may stand above bit 8 */
  TW_DATA = 6          /* launch: what an operand holds is out of range (a table); see TW_DATA_IN */
};
/* The answer of a launch that looked into a table before it wrote anything: which pointer of the arguments leads
 * there.  `check` is not asked such things: it looks at no operand. */
#define TW_DATA_IN(args_struct, pointer) (TW_DATA | (int)(offsetof(args_struct, pointer) << 8))

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
  /* Kernels that take a packed operand, null for others: the size of its packed form, and the packing
   * itself (reads the operand as args describe it, writes `packed`, aligned to 64). */
  int64_t (*packed_bytes)(const void *args);
  int (*pack)(const void *args, void *packed, void *stream);
  /* On GPUs: so many bytes at the start of the workspace must be zero when the kernel is launched, and are
   * zero again when it is done; whoever allocates the workspace clears them once.  A multiple of 64; 0
   * where the kernel needs none, and for host kernels. */
  int64_t clear_bytes;
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
