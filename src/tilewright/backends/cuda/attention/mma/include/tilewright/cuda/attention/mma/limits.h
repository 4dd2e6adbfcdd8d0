// mma, mma_decode: cp.async feeds mma.sync; any stride, pages of any layout, fp8 widened on its way.  What it refuses.
#pragma once
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace mma {

// `scored`: something is done to scores; `narrow`: elements of one byte; `packs`: mma_decode.
// clang-format off
#define TW_SELECT_CUDA_ATTENTION_MMA(X) \
  X(tile_m) X(tile_n) X(warps_m) X(warps_n) X(kv_stages) X(ctas_per_sm) X(packs) X(head_dim) X(head_dim_v) X(scored) \
  X(narrow) X(size_kv)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_MMA)

inline const Rule *limits(const Schedule &, const Attention &a) {
  return nothing_to_do(a.p) ? nullptr : size_limits(a.p);
}

}  // namespace mma
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
