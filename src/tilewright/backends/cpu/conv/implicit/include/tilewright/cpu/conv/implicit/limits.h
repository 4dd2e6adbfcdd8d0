// implicit: forward and backward-data as a GEMM that reads its operand where it lies.  What it refuses.
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace implicit {

// `rows` by `columns`: the register block; `step`: elements of k that one dot product instruction takes.
#define TW_SELECT_CPU_CONV_IMPLICIT(X) X(tile_k) X(rows) X(columns) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_IMPLICIT)

inline const Rule *limits(const Schedule &, const Conv &c) { return far_beyond(c); }

}  // namespace implicit
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
