// The numbers of the shift_ws pipeline: those of tma_ws, and where the operands lie.
#pragma once
#include <tilewright/cuda/tma_ws_shape.h>

namespace tw {

// An operand as the feeding warps see it, in bytes.
struct Rows {
  const char *at;
  long long stride, batch_stride;
};

struct ShiftWsArgs : TmaWsArgs {
  Rows a, b;  // as the kernel sees them (already turned)
};

}  // namespace tw
