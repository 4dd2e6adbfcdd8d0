// An instance of CK Tile's templates.  What it refuses.
#pragma once
#include <tilewright/hip/gemm/rules.h>

namespace tw {
namespace selection {
namespace hip_gemm {
namespace ck_tile {

// `issue`: thousandths of the matrix units' peak by a model of the main loop, or 0 (only estimates read it).
// `threads` of a block; `width_*`: elements of one load; `grain_*`: sizes are multiples of these (1 where there is edge code).
// clang-format off
#define TW_SELECT_HIP_GEMM_CK_TILE(X) \
  X(pipeline) X(tile_m) X(tile_n) X(tile_k) X(warp_tile_n) X(split_k) X(threads) X(width_a) X(width_b) X(grain_m) \
  X(grain_n) X(grain_k) X(issue)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_GEMM_CK_TILE)

enum Pipeline : int64_t { compv3, compv4, compv5, mem, preshuffle };

inline int64_t k_loops(const Schedule &s, const GemmProblem &p) { return ceil_div(p.k, s.tile_k * s.split_k); }

inline constexpr Rule amd_accesses_a{
    "amd-alignment", TW_ALIGNMENT,
    "A is read {width_a} elements at a time: its contiguous extent and its stride "
    "({a_stride}) must be multiples of that, edge code or not",
    "pad them to multiples of {width_a}, use a kernel with narrower accesses, or give b unpacked "
    "where it is packed"};
inline constexpr Rule amd_accesses_b{"amd-alignment", TW_ALIGNMENT,
                                     "B is read {width_b} elements at a time: its contiguous extent and its stride "
                                     "({b_stride}) must be multiples of that, edge code or not",
                                     "pad them to multiples of {width_b}, or use a kernel with narrower accesses"};
inline constexpr Rule amd_address{"amd-alignment", TW_ALIGNMENT,
                                  "an operand's address or batch stride is not a multiple of 16 bytes, and A and B are "
                                  "read {width_a} and {width_b} elements at a time",
                                  "align it, or use a kernel with narrower accesses"};
inline constexpr Rule amd_operand_size{"amd-operand-size", TW_LIMIT,
                                       "A or B spans 2 GiB or more, and offsets are 32-bit", "split the problem"};
inline constexpr Rule amd_k_loops{"amd-k-loops", TW_LIMIT,
                                  "k = {k} is too short: the pipeline needs more iterations of its k loop",
                                  "use a kernel with a smaller tile_k, or compv3"};
inline constexpr Rule amd_preshuffle_columns{
    "amd-preshuffle-columns", TW_DIVISIBILITY,
    "n = {n} is not a multiple of warp_tile_n {warp_tile_n}, the columns of a packed panel",
    "pad n to a multiple of {warp_tile_n}, or give b unpacked"};

// A and B are loaded in whole accesses only; E, C and D tensors may lie as they like.
inline const Rule *broken_accesses(const Schedule &s, const GemmProblem &p) {
  if (!p.aligned && (s.width_a > 1 || (s.width_b > 1 && !p.preshuffled))) return &amd_address;
  if ((p.a_rows ? p.k : p.m) % s.width_a || p.a_stride % s.width_a) return &amd_accesses_a;
  if (!p.preshuffled && ((p.b_rows ? p.n : p.k) % s.width_b || p.b_stride % s.width_b)) return &amd_accesses_b;
  return nullptr;
}

// Bytes of A and B, with the rows that the last iterations of the k loop reach for; all else has 64-bit offsets.
inline bool too_large(const Schedule &s, const GemmProblem &p) {
  const int64_t reached = k_loops(s, p) * s.tile_k * s.split_k;
  const Wide a = Wide(p.a_rows ? p.m : reached) * p.a_stride * p.size_a;
  const Wide b = p.preshuffled ? Wide(p.n) * p.k * p.size_b : Wide(p.b_rows ? reached : p.n) * p.b_stride * p.size_b;
  return a >= kMostBytes || b >= kMostBytes;
}

inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  if (nothing_to_do(p)) return nullptr;
  if (const Rule *rule = broken_accesses(s, p)) return rule;
  if (too_large(s, p)) return &amd_operand_size;
  if (too_many_tiles(p, s.tile_m, s.tile_n, s.split_k, s.threads)) return &amd_tiles;
  if (k_loops(s, p) < (s.pipeline == compv4 ? 2 : 1)) return &amd_k_loops;
  if (s.pipeline == preshuffle && p.n % s.warp_tile_n) return &amd_preshuffle_columns;
  return broken_edges(p, s.grain_m, s.grain_n, s.grain_k);
}

}  // namespace ck_tile
}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
