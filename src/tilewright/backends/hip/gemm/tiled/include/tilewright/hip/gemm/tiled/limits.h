// tiled: tiles staged in LDS by a kernel of our own, multiplied by matrix instructions.  What it refuses.
#pragma once
#include <tilewright/hip/gemm/rules.h>

namespace tw {
namespace selection {
namespace hip_gemm {
namespace tiled {

// `size`: bytes of an element as it is multiplied; `wave`: lanes of a wave; `issue`: thousandths of the matrix units' peak
// by a model of the main loop, or 0 (only estimates read it).
// clang-format off
#define TW_SELECT_HIP_GEMM_TILED(X) \
  X(tile_m) X(tile_n) X(tile_k) X(split_k) X(stages) X(threads) X(wave) X(size) X(issue)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_GEMM_TILED)

constexpr int64_t kMostSize = (int64_t(1) << 31) - (1 << 16);  // sizes are 32-bit, and so are those of the last tile

inline constexpr Rule amd_size{"amd-size", TW_LIMIT, "m = {m}, n = {n} or k = {k} is 2^31 or nearly that much",
                               "split the problem"};
inline constexpr Rule amd_stride{
    "amd-stride", TW_LIMIT,
    "a tile of {tile_m}x{tile_n}x{tile_k} spans 2 GiB or more of A or B (strides {a_stride} "
    "and {b_stride}), and offsets inside of a tile are 32-bit",
    "use a kernel with a smaller tile, or dense operands"};
inline constexpr Rule amd_no_k{"amd-k-loops", TW_LIMIT, "k = 0 has no parts, and split_k is {split_k}",
                               "use a kernel with split_k 1"};

// Bytes from the first to the last element that a tile reads.
inline bool too_far(const Schedule &s, const GemmProblem &p) {
  const Wide a = Wide(p.a_rows ? s.tile_m : s.tile_k) * p.a_stride * p.size_a;
  const int64_t stride = p.preshuffled ? p.k : p.b_stride;  // packed: columns of k
  const Wide b = Wide(p.b_rows && !p.preshuffled ? s.tile_k : s.tile_n) * stride * p.size_b;
  return a >= kMostBytes || b >= kMostBytes || p.a_stride >= kMostSize || p.b_stride >= kMostSize;
}

inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  if (nothing_to_do(p)) return nullptr;
  if (p.m >= kMostSize || p.n >= kMostSize || p.k >= kMostSize / s.split_k) return &amd_size;
  if (too_far(s, p)) return &amd_stride;
  if (too_many_tiles(p, s.tile_m, s.tile_n, s.split_k, s.threads)) return &amd_tiles;
  return s.split_k > 1 && p.k == 0 ? &amd_no_k : nullptr;
}

}  // namespace tiled
}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
