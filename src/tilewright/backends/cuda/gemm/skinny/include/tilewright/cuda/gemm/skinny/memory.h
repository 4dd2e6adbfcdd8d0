// Shared memory of skinny kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

// The accumulators of every warp, a column more than there are.
constexpr int skinny_shared_bytes(int warps, int rows, int tokens) { return warps * rows * (tokens + 1) * 4; }

}  // namespace tw
