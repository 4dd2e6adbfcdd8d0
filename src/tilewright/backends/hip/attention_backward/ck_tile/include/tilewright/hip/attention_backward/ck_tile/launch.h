// What a launch of CK Tile's gradients passes to its blocks: all that the passes of the compiler must agree on beside the
// names of kernels.  The host fills it (kernel.h), the device reads it (device.h).
#pragma once
#include <tilewright/attention_backward_rules.h>

namespace tw::hip {

template <class Config> constexpr bool backward_windowed = Config::mask == AttentionMask::window;
template <class Config> constexpr bool backward_all_accum = Config::accumulate == AttentionAccumulate::all;

struct BackwardLaunch {
  tw_attention_backward_args x;
  const float *lse, *delta;  // of prepared rows: natural logarithms; what dropout keeps of delta
  float *dq;                 // accumulators, or as many slices of them as there are tiles of keys
  int64_t dq_slice;          // elements of a slice
  float scale, dk_factor;    // of exponents of two; of dk where it is a result
};

// Exponents and rows as CK Tile wants them, and zeros for what is added to.
struct BackwardPrepare {
  const float *lse_log2, *delta_given;
  float *lse, *delta;
  float kept;  // the share of entries that dropout keeps
  int64_t prepared;
  float *cleared[3];
  int64_t clears[3];
};
struct BackwardSlices {
  const float *from;
  float *to;
  int64_t slices, elements;
};

}  // namespace tw::hip
