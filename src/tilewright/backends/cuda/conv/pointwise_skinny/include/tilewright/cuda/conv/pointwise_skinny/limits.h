// pointwise_skinny: GEMM's skinny on the matrix product that windows of one pixel are.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/pointwise_limits.h>
#include <tilewright/cuda/gemm/skinny/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace pointwise_skinny {

// GEMM's kernel, and whether channels lie first.
struct Schedule {
  cuda_gemm::skinny::Schedule product;
  int64_t planes;
};
inline const char *Schedule_names() { return TW_SELECT_CUDA_GEMM_SKINNY(TW_SELECT_NAME) "planes "; }

// The product, whose numbers the sentences of GEMM's rules name.
inline GemmProblem named_numbers(const Schedule &s, const Conv &c) {
  return pointwise::product(c, s.planes, true, true, false);
}

inline const Rule *limits(const Schedule &s, const Conv &c) {
  if (nothing_written(c)) return nullptr;
  if (const Rule *layout = pointwise::broken_layout(c, s.planes)) return layout;
  return cuda_gemm::skinny::limits(s.product, named_numbers(s, c));
}

}  // namespace pointwise_skinny
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
