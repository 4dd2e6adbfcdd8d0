// depthwise_mma: gradients of depthwise weights by matrix instructions, whole rows of images at a time.  What it takes.
#pragma once
#include <tilewright/cuda/conv/cost.h>
#include <tilewright/cuda/conv/depthwise_mma/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace depthwise_mma {

// Whole rows of images, in tiles that overlap by the rows of the window; products hide behind their reads.
inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const Rates &r = x.rate;
  if (c.p.batch == 0) return r.start;
  const int64_t units = x.arch.compute_units, blocks = ceil_div(c.p.channels, kChannels) * c.window[0];
  const Tiles tiles = tiles_of(s, c, units);
  if (!tiles.lines) return __builtin_inf();
  const int64_t rounds = ceil_div(blocks * tiles.parts, units) * ceil_div(tiles.tiles, tiles.parts);
  const double sums = 8.0 * double(tiles.parts) * c.w_elements() / r.sums;
  return r.start + slower(double(rounds * tiles.bytes) / r.mma_bytes, c.moved / r.through) + r.add_start + sums;
}

}  // namespace depthwise_mma
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
