// lanes_wgrad: gradients of weights of depthwise and small groups, a handful of taps in registers.  What it takes.
#pragma once
#include <tilewright/cpu/conv/strip_cost.h>
#include <tilewright/cpu/conv/lanes_wgrad/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace lanes_wgrad {

inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const int64_t cores = team(x), taps = c.taps * c.group_channels, width = cpu_conv::width(x);
  const int64_t vectors = vectors_of(x, c.group_filters), calls = ceil_div(taps, s.taps);
  const double lines = real(Wide(vectors) * c.p.batch * c.out[0] * c.out[1]);
  const double pixel = double(taps) * 1.2 * multiply_add(x) * crowded(c, c.group_channels) + double(calls);
  double cycles = lines * (double(c.out[2]) * pixel + double(calls) * (kBlock + kSave * double(s.taps)));
  const double each = spread(c.group_channels, c.group_filters, width);
  const double laid = real(Wide(c.p.batch) * c.size.product() * c.window[0]) * each;
  cycles += double(vectors) * (laid + real(Wide(c.p.batch) * c.out.product()) * kSpread);
  cycles += lines * 150.0;
  cycles += real(Wide(vectors) * taps * width) * 3.0;
  return seconds_of(x, cores, cycles / double(cores), transposed(x));
}

}  // namespace lanes_wgrad
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
