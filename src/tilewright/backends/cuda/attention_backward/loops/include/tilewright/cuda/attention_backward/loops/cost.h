// loops: any size, stride, element type and feature.  What it takes.
#pragma once
#include <tilewright/cuda/attention_backward/cost.h>
#include <tilewright/cuda/attention_backward/loops/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  const double products = double(x.a.flops) / 2 / x.rate.loop_macs, moved = double(x.a.moved) / x.rate.memory;
  return 2 * x.rate.start + slower(products, moved * 2);
}

}  // namespace loops
}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
