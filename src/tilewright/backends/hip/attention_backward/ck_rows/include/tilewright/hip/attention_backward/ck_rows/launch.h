// What a launch of CK Tile's dot_do_o or convert_dq passes to its blocks: all that the passes of the compiler must agree on
// beside the names of kernels.
#pragma once
#include <tilewright/attention_backward_rules.h>

namespace tw::hip {

struct CkDotLaunch {
  tw_attention_backward_dot_args x;
};
// One result: rows of accumulators, of `rows` each sequence has, in a head's elements.
struct CkConvertLaunch {
  tw_attention_backward_sums x;
  int64_t rows, head;
  float factor;
};

}  // namespace tw::hip
