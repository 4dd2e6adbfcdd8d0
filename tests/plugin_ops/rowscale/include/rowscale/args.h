/* The arguments of a rowscale kernel; rowscale/binding.py mirrors them. */
#ifndef ROWSCALE_ARGS_H
#define ROWSCALE_ARGS_H

#include <stdint.h>

/* y[i, j] = activation(alpha * x[i, j] * scale[i]).  Strides are in elements; rows are contiguous.  y may be x. */
typedef struct tw_rowscale_args {
  int64_t rows, columns;
  const void *x;
  const void *scale; /* fp32 */
  void *y;
  int64_t x_stride, scale_stride, y_stride;
  double alpha;
} tw_rowscale_args;

#endif
