// What kernels refuse whose vectors run along channels, each lane in a group of its own (conv/strip.h).
#pragma once
#include <tilewright/cpu/conv/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {

constexpr int64_t kStripDepth = 64;       // channels of a group a strip holds
constexpr int64_t kExactProducts = 1024;  // of bytes, whose sum fp32 holds exactly

inline constexpr Rule cpu_strip{"cpu-strip", TW_LIMIT,
                                "{channels} channels and {filters} filters (groups: {groups}) leave a group more "
                                "than 64 channels or filters to sum over",
                                "use implicit"};
inline constexpr Rule cpu_exact{"cpu-exact", TW_LIMIT,
                                "{channels} channels (groups: {groups}) with a {window_0}x{window_1}x{window_2} "
                                "filter sum more than 1024 int8 products, which fp32 does not hold exactly",
                                "use implicit"};

inline const Rule *broken_strip(const Conv &c) {
  if (const Rule *beyond = far_beyond(c)) return beyond;
  if (depth_of(c) > kStripDepth) return &cpu_strip;
  return c.p.size == 1 && depth_of(c) * c.taps > kExactProducts ? &cpu_exact : nullptr;
}

}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
