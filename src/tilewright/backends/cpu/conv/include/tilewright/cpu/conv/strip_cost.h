// What kernels cost alike whose vectors run along channels, each lane in a group of its own (conv/strip.h).
#pragma once
#include <tilewright/cpu/conv/cost.h>

namespace tw {
namespace selection {
namespace cpu_conv {

constexpr int64_t kStrip = 128 << 10;  // bytes of a strip that takes twice as long as one in the first-level cache
constexpr double kSpread = 2.5;        // a vector of a strip

inline int64_t vectors_of(const Query &x, int64_t columns) { return ceil_div(columns * x.c.p.groups, width(x)); }

// How much longer a strip takes that leaves the first-level cache.
inline double crowded(const Conv &c, int64_t depth) {
  int64_t height = 1;  // lines of a strip, which are a power of two
  while (height < c.window[1]) height *= 2;
  const Wide bytes = Wide(c.window[0]) * height * depth * (c.out[2] + 8) * 64;
  return 1.0 + faster(2.0, real(bytes) / double(kStrip));
}

// A pixel's channels laid out for one vector of results: a plain load, permutes of one, or of several.
inline double spread(int64_t depth, int64_t columns, int64_t width) {
  if (depth == 1 && columns == 1) return kSpread;
  const int64_t reach = columns < width ? (ceil_div(width, columns) + 1) * depth : depth;  // that lanes read from
  return double(depth) * (reach <= width ? kSpread : double(ceil_div(reach, width)) * 1.5);
}

}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
