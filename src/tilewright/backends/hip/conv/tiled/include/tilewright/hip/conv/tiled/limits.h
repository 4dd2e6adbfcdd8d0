// wmma, mfma and fma: tiles staged in LDS by kernels of our own, where CK Tile's headers have no product.  What it refuses.
#pragma once
#include <tilewright/hip/conv/limits.h>

namespace tw {
namespace selection {
namespace hip_conv {
namespace tiled {

#define TW_SELECT_HIP_CONV_TILED(X) TW_SELECT_HIP_CONV_TILES(X) X(wmma) X(mfma)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_CONV_TILED)

inline const Rule *limits(const Schedule &s, const Conv &c) { return broken_tiles(tiles_of(s), c); }

}  // namespace tiled
}  // namespace hip_conv
}  // namespace selection
}  // namespace tw
