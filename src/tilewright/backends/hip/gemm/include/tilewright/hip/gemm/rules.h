// What launches of GEMM on AMD GPUs cannot have, whatever the kernel family.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace hip_gemm {

constexpr int64_t kMostThreads = int64_t(1) << 32;  // of a launch along an axis
// Offsets inside A and B are 32-bit, and those of a tile that hangs over the end must not come round.
constexpr int64_t kMostBytes = (int64_t(1) << 31) - (1 << 16);

inline constexpr Rule amd_tiles{"amd-tiles", TW_LIMIT,
                                "tiles of {tile_m}x{tile_n} make a launch of 2^32 threads or more",
                                "use a kernel with a larger tile"};

inline bool too_many_tiles(const GemmProblem &p, int64_t tile_m, int64_t tile_n, int64_t split_k, int64_t threads) {
  const Wide tiles = Wide(ceil_div(p.m, tile_m)) * ceil_div(p.n, tile_n);
  return tiles * split_k * threads >= kMostThreads;
}

}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
