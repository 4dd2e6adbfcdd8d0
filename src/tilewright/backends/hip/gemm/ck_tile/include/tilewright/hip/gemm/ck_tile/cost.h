// An instance of CK Tile's templates.  What it takes.
#pragma once
#include <tilewright/hip/gemm/cost.h>
#include <tilewright/hip/gemm/ck_tile/limits.h>

namespace tw {
namespace selection {
namespace hip_gemm {
namespace ck_tile {

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
inline double seconds(const Schedule &s, const Query &x) {
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
  const double speed = peak * reached(share(s, r), s.issue, slower(0.1, reuse) * slower(0.2, narrow));
  const double compute = rounds * turns * double(m) * double(n) * double(s.tile_k) / speed;
  const Wide sums = s.split_k > 1 ? Wide(2) * s.split_k * p.m * p.n * p.batch * 4 : 0;
  return r.start * (s.split_k > 1 ? 2.0 : 1.0) + slower(compute, (x.moved + double(sums)) / r.memory);
}

}  // namespace ck_tile
}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
