// loops: any size, stride and element type; the floor.  What it takes.
#pragma once
#include <tilewright/cuda/conv/cost.h>
#include <tilewright/cuda/conv/loops/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace loops {

// Products where there are elements enough for all threads, or those of one element, one after another.
inline double seconds(const Schedule &, const Query &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  if (p.batch == 0) return x.rate.start;
  const Wide deep = p.variant == backward_weight ? Wide(p.batch) * c.out.product()
                    : p.variant == forward       ? Wide(c.group_channels) * c.taps
                                                 : Wide(c.group_filters) * c.taps;
  return x.rate.start + slower(multiply_adds(c) / x.rate.loop_rate, double(deep) * x.rate.loop_step);
}

}  // namespace loops
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
