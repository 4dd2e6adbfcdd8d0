// loops: any size, stride and element type, on every GPU; the floor.  What it takes.
#pragma once
#include <tilewright/hip/conv/cost.h>
#include <tilewright/hip/conv/loops/limits.h>

namespace tw {
namespace selection {
namespace hip_conv {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  const Conv &c = x.c;
  const Wide products = Wide(c.p.batch) * c.out.product() * c.p.filters * c.group_channels * c.taps;
  return x.rate.start + double(products) / x.rate.loop_rate;
}

}  // namespace loops
}  // namespace hip_conv
}  // namespace selection
}  // namespace tw
