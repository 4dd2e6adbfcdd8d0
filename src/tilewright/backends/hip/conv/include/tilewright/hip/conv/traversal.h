// What a launch passes to the blocks of a convolution: the matrix product of one group, and how its rows, taps and channels
// lead to pixels.
//
//   forward          rows are pixels of y, k the taps and channels of x at them, columns filters
//   backward_data    rows are pixels of x, k the taps and filters of dy that read them, columns channels
//   backward_weight  rows are filters, k pixels of dy, columns the taps and channels of x at them
//
// Groups of few channels are merged: several of them are one product, in which the weights between channels and filters
// of different groups are zeros that nobody reads.
//
// The operand that is read at taps is the gathered one.  With strides backward_data traverses one residue of the pixels
// of x after another: those of one are read at the same taps.  Each is a class, and others have one class.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>

namespace tw::hip {

constexpr int conv_axes = TW_CONV_SPATIAL;

struct ConvClass {
  int pixels, taps;           // pixels of all images
  int turns;                  // of the k loop, the same in every split
  Divider size[conv_axes];    // pixels along an axis
  Divider window[conv_axes];  // taps along an axis
  int first[conv_axes];       // pixel of the gathered operand that the first pixel's first tap reads
  int weights;                // elements from a filter to the first tap; backward_data only
  int64_t written;            // elements from the result's first pixel to the class's
};

template <int most_classes> struct ConvLaunch {
  const void *a, *b, *d[TW_CONV_MAX_D];
  void *e;
  void *accum;  // where k is split: the splits of each group, m x sums_stride each
  int m, n, k, parts, finish_across, wide;
  uint32_t a_bytes, b_bytes;  // what one group spans
  int a_stride, b_stride;     // elements from row to row of what is not gathered
  Divider depth;              // channels, or filters, of one tap
  Divider inner, outer;       // of weights of merged groups: those of one group along k, and along the columns
  int step[conv_axes];        // from pixel to pixel, and from tap to tap, in pixels of the gathered operand
  int reach[conv_axes];
  int size[conv_axes];             // of the gathered operand
  int read[conv_axes + 1];         // its strides: image, axes
  int filter, tap[conv_axes];      // strides of weights: from filter to filter, from tap to tap of a class
  int64_t written[conv_axes + 1];  // strides of the result: image (backward_weight: filter), axes
  int64_t d_written[TW_CONV_MAX_D][conv_axes + 1];
  int64_t d_column[TW_CONV_MAX_D];
  int64_t a_group, b_group, e_group, d_group[TW_CONV_MAX_D], accum_stride;  // elements from group to group
  ConvClass classes[most_classes];
};

// Classes of one launch.
template <class Config> constexpr int conv_classes = Config::variant == ConvVariant::backward_data ? 8 : 1;

}  // namespace tw::hip
