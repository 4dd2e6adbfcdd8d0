// loops: any size, stride, element type and feature.  What it takes.
#pragma once
#include <tilewright/hip/attention_backward/cost.h>
#include <tilewright/hip/attention_backward/loops/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  const double products = double(x.a.flops) / 2 / x.rate.loops, moved = double(x.a.moved) / x.rate.memory;
  return 2 * x.rate.start + slower(products, moved * 2);
}

}  // namespace loops
}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
