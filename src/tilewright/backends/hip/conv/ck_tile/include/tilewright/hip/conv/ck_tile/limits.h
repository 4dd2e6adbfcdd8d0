// GEMM's instance of CK Tile with windows of our own.  What it refuses.
#pragma once
#include <tilewright/hip/conv/limits.h>

namespace tw {
namespace selection {
namespace hip_conv {
namespace ck_tile {

// `width_*`: neighbours of A and of B that a lane holds.
#define TW_SELECT_HIP_CONV_CK_TILE(X) TW_SELECT_HIP_CONV_TILES(X) X(pipeline) X(width_a) X(width_b)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_CONV_CK_TILE)

inline const Rule *limits(const Schedule &s, const Conv &c) { return broken_tiles(tiles_of(s), c); }

}  // namespace ck_tile
}  // namespace hip_conv
}  // namespace selection
}  // namespace tw
