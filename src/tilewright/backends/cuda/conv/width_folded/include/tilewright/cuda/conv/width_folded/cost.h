// width_folded: tma_ws of few channels, of which pixels of a row make many in a copy.  What it takes.
#pragma once
#include <tilewright/cuda/conv/width_folded/limits.h>
#include <tilewright/cuda/conv/tma_ws/cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace width_folded {

// Copies, and the convolution of many channels.
inline double seconds_as_laid_out(const Schedule &s, const Query &x) {
  const Elements all = elements(x.c);
  const double copied = 2.0 * double(all.x + all.w + all.y) + x.c.moved;
  const ConvProblem inner = folded(x.c);
  const Conv many(inner);
  const double taken = tma_ws::seconds_as_laid_out(equivalent(s), Query{many, x.rate, x.arch, x.host});
  return taken + 2 * x.rate.add_start + copied / x.rate.memory;
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_in_copies(s.copies, needs, x, [&](const Query &laid_out) { return seconds_as_laid_out(s, laid_out); });
}

}  // namespace width_folded
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
