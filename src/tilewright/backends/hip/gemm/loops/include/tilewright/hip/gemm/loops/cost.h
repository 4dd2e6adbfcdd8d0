// loops: any element types, strides and alignment; the fallback.  What it takes.
#pragma once
#include <tilewright/hip/gemm/cost.h>
#include <tilewright/hip/gemm/loops/limits.h>

namespace tw {
namespace selection {
namespace hip_gemm {
namespace loops {

// Two blocks of a compute unit hide each other's waiting.
inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const Wide blocks = Wide(ceil_div(p.m, s.tile_m)) * ceil_div(p.n, s.tile_n) * larger(1, p.batch);
  const Wide room = 2 * larger(1, x.arch.compute_units);
  const Wide turns = (blocks + room - 1) / room * (ceil_div(p.k, s.tile_k) + 1);
  const double compute = double(turns * 2 * s.tile_m * s.tile_n * s.tile_k) / (r.loops_macs * r.clock);
  return r.start + slower(compute, x.moved / r.memory);
}

}  // namespace loops
}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
