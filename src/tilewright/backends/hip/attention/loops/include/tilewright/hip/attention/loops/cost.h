// loops: any size, stride, element type and feature.  What it takes.
#pragma once
#include <tilewright/hip/attention/cost.h>
#include <tilewright/hip/attention/loops/limits.h>

namespace tw {
namespace selection {
namespace hip_attention {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  return x.rate.start + (double(x.a.flops) / 2 + double(x.a.moved) / 4) / x.rate.loops;
}

}  // namespace loops
}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
