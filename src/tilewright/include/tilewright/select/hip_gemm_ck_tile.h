// An instance of CK Tile's templates.
#pragma once
#include <tilewright/select/hip_gemm.h>

namespace tw {
namespace select {
namespace hip_gemm {
namespace ck_tile {

// `threads` of a block; `width_*`: elements of one load; `edge_*`: there is edge code along the axis.
// clang-format off
#define TW_SELECT_HIP_GEMM_CK_TILE(X) \
  X(pipeline) X(tile_m) X(tile_n) X(tile_k) X(warp_tile_n) X(split_k) X(threads) X(width_a) X(width_b) X(edge_m) \
  X(edge_n) X(edge_k)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_GEMM_CK_TILE)

enum Pipeline : int64_t { compv3, compv4, compv5, mem, preshuffle };

constexpr int64_t kMostBytes = int64_t(1) << 31;    // offsets into an operand are 32-bit
constexpr int64_t kMostThreads = int64_t(1) << 32;  // of a launch

inline int64_t k_loops(const Schedule &s, const GemmProblem &p) { return ceil_div(p.k, s.tile_k * s.split_k); }

// What is loaded in whole accesses only.
inline bool broken_accesses(const GemmProblem &p, int64_t extent, int64_t stride, int64_t width) {
  return (width > 1 && !p.aligned) || extent % width || stride % width;
}

// Bytes of A and B, with the rows that the last turns of the k loop reach for; all else has 64-bit offsets.
inline bool too_large(const Schedule &s, const GemmProblem &p) {
  const int64_t reached = k_loops(s, p) * s.tile_k * s.split_k;
  const Wide a = Wide(p.a_rows ? p.m : reached) * p.a_stride * p.size_a;
  const Wide b = p.preshuffled ? Wide(p.n) * p.k * p.size_b : Wide(p.b_rows ? reached : p.n) * p.b_stride * p.size_b;
  return a >= kMostBytes || b >= kMostBytes;
}

inline GemmRule limits(const Schedule &s, const Asked &x) {
  const GemmProblem &p = x.p;
  if (nothing_to_do(p)) return GemmRule::serves;
  if (broken_accesses(p, p.a_rows ? p.k : p.m, p.a_stride, s.width_a)) return GemmRule::amd_alignment;
  if (!p.preshuffled && broken_accesses(p, p.b_rows ? p.n : p.k, p.b_stride, s.width_b)) return GemmRule::amd_alignment;
  if (too_large(s, p)) return GemmRule::amd_operand_size;
  const Wide tiles = Wide(ceil_div(p.m, s.tile_m)) * ceil_div(p.n, s.tile_n);
  if (tiles * s.split_k * s.threads >= kMostThreads) return GemmRule::amd_tiles;
  if (k_loops(s, p) < (s.pipeline == compv4 ? 2 : 1)) return GemmRule::amd_k_loops;
  if (s.pipeline == preshuffle && p.n % s.warp_tile_n) return GemmRule::amd_preshuffle_columns;
  // The preshuffle pipeline takes its k tiles in pairs.
  const int64_t deep = s.tile_k * s.split_k * (s.pipeline == preshuffle ? 2 : 1);
  return broken_edges(p, s.edge_m ? 1 : s.tile_m, s.edge_n ? 1 : s.tile_n, s.edge_k ? 1 : deep);
}

inline double share(const Schedule &s, const Rates &r) {
  return s.pipeline == compv3   ? r.share_compv3
         : s.pipeline == compv4 ? r.share_compv4
         : s.pipeline == compv5 ? r.share_compv5
         : s.pipeline == mem    ? r.share_mem
                                : r.share_preshuffle;
}

inline double ramp(const Schedule &s, const Rates &r) {
  return s.pipeline == compv3   ? r.ramp_compv3
         : s.pipeline == compv4 ? r.ramp_compv4
         : s.pipeline == compv5 ? r.ramp_compv5
         : s.pipeline == mem    ? r.ramp_mem
                                : r.ramp_preshuffle;
}

// The matrix units over whole rounds of blocks, the bytes that must come from memory, and starting.
inline double seconds(const Schedule &s, const Asked &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const int64_t m = s.tile_m, n = s.tile_n, waves = s.threads / 64;
  const Wide blocks = Wide(ceil_div(p.m, m)) * ceil_div(p.n, n) * s.split_k * larger(1, p.batch);
  const double turns = double(k_loops(s, p)) + ramp(s, r);
  // Four SIMDs share a compute unit's matrix units: fewer waves than that leave some idle.
  const Wide room = larger(1, x.arch.compute_units * larger(1, 4 / waves));
  const double rounds = double((blocks + room - 1) / room);
  // Small tiles are fed from LDS too often; narrow accesses feed it too slowly.
  const double reuse = faster(1.0, double(m * n) / double(m + n) / 48);
  const double narrow = double(smaller(s.width_a, s.width_b) * p.size_a) / 16;
  const double macs = p.size_a == 4 ? r.macs_4 : p.size_a == 2 ? r.macs_2 : r.macs_1;
  const double peak = macs * r.clock * faster(1.0, double(waves) / 4);
  const double speed = peak * share(s, r) * slower(0.1, reuse) * slower(0.2, narrow);
  const double compute = rounds * turns * double(m) * double(n) * double(s.tile_k) / speed;
  const Wide sums = s.split_k > 1 ? Wide(2) * s.split_k * p.m * p.n * p.batch * 4 : 0;
  return r.start * (s.split_k > 1 ? 2.0 : 1.0) + slower(compute, (x.moved + double(sums)) / r.memory);
}

}  // namespace ck_tile
}  // namespace hip_gemm
}  // namespace select
}  // namespace tw
