// pointwise_multistage: GEMM's multistage on the matrix product that windows of one pixel are.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/pointwise_limits.h>
#include <tilewright/cuda/gemm/multistage/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace pointwise_multistage {

// GEMM's kernel, and whether channels lie first.
struct Schedule {
  cuda_gemm::multistage::Schedule product;
  int64_t planes;
};
inline const char *Schedule_names() { return TW_SELECT_CUDA_GEMM_MULTISTAGE(TW_SELECT_NAME) "planes "; }

// The product, whose numbers the sentences of GEMM's rules name.
inline GemmProblem named_numbers(const Schedule &s, const Conv &c) {
  return pointwise::product(c, s.planes, s.product.vector_a > 1, s.product.vector_b > 1, false);
}

inline const Rule *limits(const Schedule &s, const Conv &c) {
  if (nothing_written(c)) return nullptr;
  if (const Rule *layout = pointwise::broken_layout(c, s.planes)) return layout;
  return cuda_gemm::multistage::limits(s.product, named_numbers(s, c));
}

}  // namespace pointwise_multistage
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
