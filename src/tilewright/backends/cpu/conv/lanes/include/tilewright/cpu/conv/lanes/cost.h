// lanes: vectors along the channels of the result, each lane in a group of its own: depthwise, and small groups.
// What it takes.
#pragma once
#include <tilewright/cpu/conv/strip_cost.h>
#include <tilewright/cpu/conv/lanes/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace lanes {

inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const Gathered g = gathered(x.c);
  const int64_t cores = team(x), vectors = vectors_of(x, g.columns);
  // With strides a gradient is a sum of classes: each has its part of the pixels and taps, and spreads anew.
  const Wide parts = classes(x);
  const int64_t apart = back(x.c) ? smaller(c.stride[2], c.size[2]) : 1;
  const int64_t line = round_up(ceil_div(made(x)[2], apart), larger(1, s.pixels / 2));
  const double lines = real(Wide(vectors) * c.p.batch * made(x)[0] * made(x)[1] * apart);
  const double each = g.depth == 1 && parts == 1 && c.stride[2] == 1 ? 1.2 : 1.6;
  const double products =
      real(Wide(line) * c.taps) / real(parts) * double(g.depth) * each * multiply_add(x) * crowded(c, g.depth);
  double cycles = lines * (products + (double(line) / double(s.pixels) + 0.5) * kBlock);
  const Wide times = parts < c.taps ? parts : Wide(c.taps);
  const Wide pixels = Wide(vectors) * c.p.batch * read(x).product() * c.window[0] * times;
  const bool dealt = g.depth > 1 || g.columns > 1;  // lanes read from others' places
  const double narrow = dealt && c.p.size == 2 ? 30.0 * double(g.depth) : 0.0;
  cycles += real(pixels) * (spread(g.depth, g.columns, width(x)) + narrow);
  return seconds_of(x, cores, (cycles + lines * 150.0) / double(cores), transposed(x));
}

}  // namespace lanes
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
