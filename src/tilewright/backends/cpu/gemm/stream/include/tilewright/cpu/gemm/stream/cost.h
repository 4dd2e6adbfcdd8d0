// gemv, stream: one operand is streamed past a handful of vectors of the other.  What it takes.
#pragma once
#include <tilewright/cpu/gemm/cost.h>
#include <tilewright/cpu/gemm/stream/limits.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace stream {

// Each vector of the matrix is loaded (and widened) once, then multiplied with every one of the few; lines of k are
// folded in registers, lines across k add into accumulators in the first-level cache.
inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const int64_t cores = team(x), words = width(x) * s.step;
  const bool rows_are_few = p.m <= s.most;
  const int64_t few = rows_are_few ? p.m : p.n, many = rows_are_few ? p.n : p.m;
  const double lines = double(round_up(many, 16 * cores)) / double(cores);
  const double convert = p.type_b == fp32 ? 0.0 : 0.8;
  const bool transposed = few != p.m;  // results leave across their rows
  const bool folded = transposed ? p.a_rows : !p.b_rows;
  const double each =
      (folded ? 0.68 * double(few) + 3.0 : 0.88 * double(few) + 4.0) + (few > 64 ? 0.2 * double(few) : 0.0) + convert;
  const double fold = folded ? double(few) * (x.rate.fold + x.rate.fold_transposed * (transposed ? 1.0 : 0.0)) : 0.0;
  const double penalty = s.gemv ? 0.999 : 1.0;
  return seconds_of(x, penalty * lines * double(p.batch) * (double(ceil_div(p.k, words)) * each + fold + 6.0));
}

}  // namespace stream
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
