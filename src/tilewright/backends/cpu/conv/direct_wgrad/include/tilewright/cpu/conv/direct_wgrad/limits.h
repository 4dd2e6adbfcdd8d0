// direct_wgrad: gradients of weights of few channels, taps and channels by filters in lanes; no patches.
// What it refuses.
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace direct_wgrad {

// `tile_n`: filters done at a time; `tile_k`: pixels packed at a time; `rows` by `columns`: the register block;
// `step`: pixels multiplied at once.
#define TW_SELECT_CPU_CONV_DIRECT_WGRAD(X) X(tile_n) X(tile_k) X(rows) X(columns) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_DIRECT_WGRAD)

constexpr int64_t kMostChannels = 256;  // of a group whose lines are packed

inline constexpr Rule cpu_lines{
    "cpu-lines", TW_LIMIT,
    "more than 256 channels per group ({channels} channels, groups: {groups}), the most that a packed line holds",
    "use outer"};

inline const Rule *limits(const Schedule &, const Conv &c) {
  if (const Rule *beyond = far_beyond(c)) return beyond;
  return c.group_channels > kMostChannels ? &cpu_lines : nullptr;
}

}  // namespace direct_wgrad
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
