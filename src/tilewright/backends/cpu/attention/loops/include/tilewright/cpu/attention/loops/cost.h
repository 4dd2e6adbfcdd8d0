// loops: any size, stride, element type and feature.  What it takes.
#pragma once
#include <tilewright/cpu/attention/cost.h>
#include <tilewright/cpu/attention/loops/limits.h>

namespace tw {
namespace selection {
namespace cpu_attention {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  if (!x.a.p.batch) return seconds_of(x, 0.0);
  const double cycles = x.rate.loop * double(x.a.flops) / 2 + double(x.a.moved) / 2;
  return seconds_of(x, cycles / double(larger(1, x.host.threads)));
}

}  // namespace loops
}  // namespace cpu_attention
}  // namespace selection
}  // namespace tw
