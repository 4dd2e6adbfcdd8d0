// loops: any element types, strides and alignment; the fallback.  What it takes.
#pragma once
#include <tilewright/cuda/gemm/cost.h>
#include <tilewright/cuda/gemm/loops/limits.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace loops {

inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  if (nothing_to_do(p)) return r.start;
  const Wide tiles = Wide(ceil_div(p.m, s.tile_m)) * ceil_div(p.n, s.tile_n) * p.batch,
             units = x.arch.compute_units * 4;
  const Wide turns = (tiles + units - 1) / units * ceil_div(p.k, s.tile_k);
  const double traversed = slower(double(multiply_adds(p)) / r.loops_macs, double(turns) * r.loops_turn);
  return r.start + slower(x.moved / r.memory, traversed);
}

}  // namespace loops
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
