// tiled: tiles staged in LDS by a kernel of our own, multiplied by matrix instructions.  What it takes.
//
// A model: its shares were not measured, because no AMD GPU was at hand.  Only the order of the answers matters.
#pragma once
#include <tilewright/hip/gemm/cost.h>
#include <tilewright/hip/gemm/tiled/limits.h>

namespace tw {
namespace selection {
namespace hip_gemm {
namespace tiled {

// Rows that begin anywhere cross lines of the cache.
constexpr double kCrossed = 0.7;

inline bool whole_rows(const GemmProblem &p) {
  return p.aligned && p.a_stride * p.size_a % 16 == 0 && (p.preshuffled ? p.k : p.b_stride) * p.size_b % 16 == 0;
}

// The matrix units over whole rounds of blocks, the bytes that must come from memory, and starting.
inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const int64_t m = s.tile_m, n = s.tile_n, waves = s.threads / s.wave;
  const Wide blocks = Wide(ceil_div(p.m, m)) * ceil_div(p.n, n) * s.split_k * larger(1, p.batch);
  const double turns = double(ceil_div(p.k, s.tile_k * s.split_k)) + r.ramp_tiled;
  // Eight waves fill a compute unit of either kind: two for each SIMD of CDNA, four of RDNA.
  const int64_t together = larger(1, 8 / waves);
  const Wide room = larger(1, x.arch.compute_units * together);
  const double rounds = double((blocks + room - 1) / room);
  // Small tiles are fed from LDS too often; one place in LDS makes waves wait for each other twice a turn.
  const double reuse = faster(1.0, double(m * n) / double(m + n) / 48);
  const double crossed = whole_rows(p) ? 1.0 : kCrossed;
  const double by_shape = slower(0.1, reuse) * (s.stages > 1 ? 1.0 : 0.85);
  const double macs = s.size == 4 ? r.macs_4 : s.size == 2 ? r.macs_2 : r.macs_1;
  const double speed = macs * r.clock / double(together) * reached(r.share_tiled, s.issue, by_shape) * crossed;
  const double compute = rounds * turns * double(m) * double(n) * double(s.tile_k) / speed;
  const Wide sums = s.split_k > 1 ? Wide(2) * s.split_k * p.m * p.n * p.batch * 4 : 0;
  return r.start * (s.split_k > 1 ? 2.0 : 1.0) + slower(compute, (x.moved + double(sums)) / r.memory);
}

}  // namespace tiled
}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
