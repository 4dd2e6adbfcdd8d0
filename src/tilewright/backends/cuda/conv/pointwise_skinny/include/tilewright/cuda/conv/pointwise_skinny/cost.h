// pointwise_skinny: GEMM's skinny on the matrix product that windows of one pixel are.  What it takes.
#pragma once
#include <tilewright/cuda/conv/pointwise_cost.h>
#include <tilewright/cuda/conv/pointwise_skinny/limits.h>
#include <tilewright/cuda/gemm/skinny/cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace pointwise_skinny {

inline double seconds(const Schedule &s, const Query &x) {
  if (x.c.p.batch == 0) return x.rate.start;
  const pointwise::Gemm gemm(x, pointwise::product(x.c, s.planes, true, true, true));
  return pointwise::in_measure(x.c, x.rate, s.planes, cuda_gemm::skinny::seconds(s.product, gemm.query));
}

}  // namespace pointwise_skinny
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
