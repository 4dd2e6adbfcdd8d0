// tma_ws: TMA feeds wgmma, warp-specialised and persistent.  What it refuses.
#pragma once
#include <tilewright/cuda/gemm/rules.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace tma_ws {

// clang-format off
#define TW_SELECT_CUDA_GEMM_TMA_WS(X) \
  X(tile_m) X(tile_n) X(tile_k) X(cluster_m) X(cluster_n) X(pingpong) X(swap_ab) X(tile_scheduler) X(tma_store)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_GEMM_TMA_WS)

// Blocks of a cluster that share the k of a tile.
inline int64_t sharing_k(const Schedule &s) { return s.tile_scheduler == cluster_k ? s.cluster_m * s.cluster_n : 1; }

inline constexpr Rule nv_tma_store{
    "nv-alignment", TW_ALIGNMENT,
    "a row of E, n = {n} elements of {size_c} bytes and {c_stride} apart, is not a multiple of 16 bytes, which the TMA "
    "store needs",
    "align it, or use a kernel with the direct store"};
inline constexpr Rule nv_tma_store_address{
    "nv-alignment", TW_ALIGNMENT,
    "the address or batch stride of E is not a multiple of 16 bytes, which the TMA store needs",
    "align it, or use a kernel with the direct store"};
inline constexpr Rule nv_tma_store_beta{"nv-beta", TW_LIMIT,
                                        "beta is not 0, and swap_ab kernels with the TMA store read no C",
                                        "use a kernel with the direct store, or one without swap_ab"};
inline constexpr Rule nv_cluster_k{"nv-cluster-k", TW_LIMIT,
                                   "k = {k} is too short for the {cluster_m} x {cluster_n} blocks of a cluster",
                                   "use another tile scheduler"};
inline constexpr Rule nv_dual{"nv-alignment", TW_ALIGNMENT,
                              "a stride of A or B, an address or a batch stride is not a multiple of 16 bytes, which "
                              "kernels of two B need",
                              "align it"};
inline constexpr Rule nv_steps{"nv-size", TW_LIMIT, "2^31 or more k-blocks", "use the loops pipeline"};

// Operands TMA cannot read are copied; what it stores must fit.
inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  if (nothing_to_do(p)) return nullptr;
  if (p.k == 0) return &nv_empty_k;
  if (largest_size(p) >= kMostSize) return &nv_size;
  // TMA writes whole 16-byte pieces: a row of E that ends inside one would be written past its end.
  if (s.tma_store && (unaligned(p.c_stride, p.size_c) || unaligned(p.n, p.size_c))) return &nv_tma_store;
  if (s.tma_store && !p.aligned_c) return &nv_tma_store_address;
  if (s.tma_store && s.swap_ab && p.beta) return &nv_tma_store_beta;
  if (p.dual && (unaligned(p.a_stride, p.size_a) || unaligned(p.b_stride, p.size_b) || !p.aligned)) return &nv_dual;
  const int64_t steps = ceil_div(p.k, s.tile_k), blocks = sharing_k(s);
  if (steps < blocks) return &nv_cluster_k;
  const Wide all = Wide(ceil_div(p.m, s.tile_m)) * ceil_div(p.n, s.tile_n) * p.batch * steps * blocks;
  return all >= kMostSize ? &nv_steps : nullptr;
}

}  // namespace tma_ws
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
