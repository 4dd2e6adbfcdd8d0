/* The arguments of regionstats kernels, a struct for each stage; regionstats/binding.py mirrors them. */
#ifndef REGIONSTATS_ARGS_H
#define REGIONSTATS_ARGS_H

#include <stdint.h>

#define REGIONSTATS_RANK 3

/* Which positions take part.  Fewer than three dimensions have sizes and steps of 1 behind their own.  Along a
 * dimension every step-th index counts, along the first only those below the entry's length. */
typedef struct tw_regionstats_region {
  int64_t n, channels, chunks;
  int64_t size[REGIONSTATS_RANK], step[REGIONSTATS_RANK];
  const int32_t *lengths; /* of n entries */
} tw_regionstats_region;

/* sums and peaks are (n, chunks, channels) fp32; chunk i of `chunks` takes its even share of an entry's positions. */
typedef struct tw_regionstats_partial_args {
  tw_regionstats_region region;
  const void *x;
  const void *weight; /* fp32, one a channel; null where the kernel has none */
  const void *shift;
  void *sums;
  void *peaks;
  int64_t x_stride, x_spatial_stride[REGIONSTATS_RANK]; /* in elements; channels are contiguous */
  double scale;
} tw_regionstats_partial_args;

typedef struct tw_regionstats_combine_args {
  tw_regionstats_region region;
  const void *sums;
  const void *peaks;
  void *mean; /* fp32 */
  void *peak; /* the type of x */
  int64_t mean_stride, peak_stride;
} tw_regionstats_combine_args;

#endif
