// multistage: stages filled by cp.async feed mma.sync (exact fp32: multiply-adds).  What it refuses.
#pragma once
#include <tilewright/cuda/gemm/rules.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace multistage {

// `vector_*`: elements that are copied at a time; `shared_bytes`: of a block, as `Multistage` in multistage_shape.h.
// clang-format off
#define TW_SELECT_CUDA_GEMM_MULTISTAGE(X) \
  X(tile_m) X(tile_n) X(tile_k) X(warps_m) X(warps_n) X(vector_a) X(vector_b) X(tile_scheduler) X(shared_bytes)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_GEMM_MULTISTAGE)

constexpr int64_t kMostRow = int64_t(1) << 29;  // bytes of a row are counted in 32 bits

inline constexpr Rule nv_row{"nv-size", TW_LIMIT, "m = {m}, n = {n} or k = {k} is 2^29 or more",
                             "use the loops pipeline"};
inline constexpr Rule nv_tiles{"nv-size", TW_LIMIT, "2^31 or more tiles", "use the loops pipeline"};
inline constexpr Rule nv_vector_a{
    "nv-alignment", TW_ALIGNMENT,
    "A is copied {vector_a} elements at a time, and its address, stride ({a_stride}) or batch stride is not aligned to "
    "that",
    "align it, or use a multistage kernel with vector 1"};
inline constexpr Rule nv_vector_b{
    "nv-alignment", TW_ALIGNMENT,
    "B is copied {vector_b} elements at a time, and its address, stride ({b_stride}) or batch stride is not aligned to "
    "that",
    "align it, or use a multistage kernel with vector 1"};

inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  if (nothing_to_do(p)) return nullptr;
  if (largest_size(p) >= kMostRow) return &nv_row;
  if (Wide(ceil_div(p.m, s.tile_m)) * ceil_div(p.n, s.tile_n) * p.batch >= kMostSize) return &nv_tiles;
  // What is not aligned to 16 bytes may not be aligned to less: of addresses no more is known here.
  if (s.vector_a > 1 && (!p.aligned_a || p.a_stride % s.vector_a)) return &nv_vector_a;
  if (s.vector_b > 1 && (!p.aligned_b || p.b_stride % s.vector_b)) return &nv_vector_b;
  return nullptr;
}

}  // namespace multistage
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
