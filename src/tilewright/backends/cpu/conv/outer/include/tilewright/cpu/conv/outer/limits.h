// outer: wgrad as outer products, filters by channels, pixels go by.  What it refuses.
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace outer {

// `tile_*`: filters, channels, and pixels packed at a time; `rows` by `columns`: the register block; `step`: pixels multiplied at once.
#define TW_SELECT_CPU_CONV_OUTER(X) X(tile_m) X(tile_n) X(tile_k) X(rows) X(columns) X(split_k) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_OUTER)

inline const Rule *limits(const Schedule &, const Conv &c) { return far_beyond(c); }

}  // namespace outer
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
