// planar: vectors along pixels, for results of few channels; what is read is transposed into planes, results back.
// What it refuses.
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace planar {

// Channels by pixels of the register block.
#define TW_SELECT_CPU_CONV_PLANAR(X) X(rows) X(columns)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_CONV_PLANAR)

constexpr int64_t kMostDepth = 512;  // channels of a group that are summed over
constexpr int64_t kMostParts = 64;   // that strides take a plane apart into

inline constexpr Rule cpu_planes{"cpu-planes", TW_LIMIT,
                                 "{channels} channels and {filters} filters (groups: {groups}) leave a group more "
                                 "than 512 channels or filters to sum over",
                                 "use implicit"};
inline constexpr Rule cpu_parts{"cpu-parts", TW_LIMIT,
                                "strides {stride_1}x{stride_2} divide planes into more than 64 parts", "use implicit"};

inline const Rule *limits(const Schedule &, const Conv &c) {
  if (const Rule *beyond = far_beyond(c)) return beyond;
  if (depth_of(c) > kMostDepth) return &cpu_planes;
  const Wide parts = Wide(c.out[1] > 1 ? c.stride[1] : 1) * (c.out[2] > 1 ? c.stride[2] : 1);
  return c.p.variant == forward && parts > kMostParts ? &cpu_parts : nullptr;
}

}  // namespace planar
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
