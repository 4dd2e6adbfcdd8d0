// Windows of one pixel: what the matrix product takes that such a convolution is.
#pragma once
#include <tilewright/cuda/conv/cost.h>
#include <tilewright/cuda/conv/pointwise_limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace pointwise {

// GEMM's estimate, in the measure of the kernels beside it.
inline double in_measure(const Conv &c, const Rates &r, bool planes, double of_gemm) {
  const double ahead = c.p.variant == forward && !planes ? 0.85 : 1.0;
  return r.start + ahead * (of_gemm - r.start);
}

// A question to GEMM: its problem lives as long as this.
struct Gemm {
  GemmProblem p;
  cuda_gemm::Arch arch;
  cuda_gemm::Query query;
  Gemm(const Query &x, const GemmProblem &product)
      : p(product), arch{x.arch.compute_units, x.arch.scratch_bytes}, query{p, x.c.moved, x.rate.gemm, arch, x.host} {}
};

}  // namespace pointwise
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
