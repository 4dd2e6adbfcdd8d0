// small_channel_wgrad: gradients of weights of few channels; lines of a row of x are operands as they lie.  What it takes.
#pragma once
#include <tilewright/cuda/conv/cost.h>
#include <tilewright/cuda/conv/small_channel_wgrad/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace small_channel_wgrad {

// What the host counts on when it cuts images into stages.
inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const Rates &r = x.rate;
  if (c.p.batch == 0) return r.start;
  const Stage stage = laid(s, c, x.arch.compute_units);
  if (!stage.high) return __builtin_inf();
  const double sums = 8.0 * double(stage.parts) * c.w_elements();
  return r.start + slower(double(stage.cycles) * r.first_cycle, c.moved / r.memory) + r.first_fill + r.add_start +
         sums / r.memory;
}

}  // namespace small_channel_wgrad
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
