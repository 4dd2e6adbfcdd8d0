// What TMA wants of a depthwise problem: tiles of x and y, and accumulators of taps of w.
#pragma once
#include <tilewright/cuda/conv/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {

TW_CONV_RULE(no_whole_8s, "nv-groups", "{channels} channels are not a multiple of 8")

inline bool even_planes(int64_t image, int64_t plane, int64_t depth, const Conv &c) {
  return c.p.dims != 3 || c.p.batch == 1 || depth == 1 || image == plane * depth;
}

inline const Rule *broken_tiles(const Conv &c) {
  const ConvProblem &p = c.p;
  if (p.channels % 8) return &no_whole_8s;
  if (p.x_channel != 1 || p.y_channel != 1) return &channels_apart;
  if (!even_taps(c)) return &taps_uneven;
  if (!even_planes(p.x_image, p.x_0, c.size[0], c) || !even_planes(p.y_image, p.y_0, c.out[0], c))
    return &planes_uneven;
  return nullptr;
}

}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
