/* The arguments of a convolution kernel.  The Python mirror is tilewright/runtime/bindings/conv/args.py. */
#ifndef TILEWRIGHT_CONV_ARGS_H
#define TILEWRIGHT_CONV_ARGS_H

#include <tilewright/abi.h>

#define TW_CONV_SPATIAL 3
#define TW_CONV_MAX_D 2

/* One struct for the three directions; which of x, w and y is written follows from the kernel:
 *
 *   forward          y = epilogue(conv(x, w), D0, D1)
 *   backward_data    x = the gradient of the input, from y (the gradient of the output) and w
 *   backward_weight  w = the gradient of the weights, from x and y
 *
 * Spatial arrays are depth, height, width; a problem of fewer dimensions has 1 (padding 0) in the leading ones.
 * `channels` and `filters` are those of ONE group.  The channel index of x runs over groups * channels, group by group,
 * and so do the filters of w and the channels of y; the channel index of w runs over one group's channels.
 * An output pixel o reads the input pixel o * stride - before + window * dilation; elements outside of the input count as 0.
 * Strides are in elements, in the order image (w: filter), depth, height, width, channel; those of sizes of 1 are what
 * dense memory would have.  A D tensor has the shape of y; a stride of 0 repeats it, so a bias has 0 in all but the
 * last.  Where channels of y are contiguous, the last stride of a D tensor is 0 or 1. */
typedef struct tw_conv_args {
  int64_t batch, groups, channels, filters;
  int64_t size[TW_CONV_SPATIAL];   /* of the input */
  int64_t window[TW_CONV_SPATIAL]; /* of a filter */
  int64_t out[TW_CONV_SPATIAL];    /* of the output */
  int64_t stride[TW_CONV_SPATIAL], dilation[TW_CONV_SPATIAL];
  int64_t before[TW_CONV_SPATIAL]; /* padding before the first pixel; what is needed after the last follows */
  void *x;
  void *w;
  void *y;
  const void *d[TW_CONV_MAX_D];
  int64_t x_strides[TW_CONV_SPATIAL + 2], w_strides[TW_CONV_SPATIAL + 2], y_strides[TW_CONV_SPATIAL + 2];
  int64_t d_strides[TW_CONV_MAX_D][TW_CONV_SPATIAL + 2];
} tw_conv_args;

#endif
