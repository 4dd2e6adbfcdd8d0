// skinny: few rows or few columns against a large matrix, at the speed of memory; the warps share k.  What it refuses.
#pragma once
#include <tilewright/cuda/gemm/rules.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace skinny {

#define TW_SELECT_CUDA_GEMM_SKINNY(X) X(tile_m) X(tile_n) X(warps) X(few_columns) X(tiled)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_GEMM_SKINNY)

constexpr int64_t kLoad = 8;           // k elements of one 16-byte load
constexpr int64_t kMostBatch = 65535;  // of a grid
constexpr int64_t kMostTiled = 1024;   // of every size where both sides are tiled: each block reads its operands anew

inline constexpr Rule nv_stride_a{"nv-alignment", TW_ALIGNMENT,
                                  "the stride of A, {a_stride} elements of {size_a} bytes, is not a multiple of 16 "
                                  "bytes",
                                  "align it, or use the multistage pipeline"};
inline constexpr Rule nv_stride_b{"nv-alignment", TW_ALIGNMENT,
                                  "the stride of B, {b_stride} elements of {size_b} bytes, is not a multiple of 16 "
                                  "bytes",
                                  "align it, or use the multistage pipeline"};
inline constexpr Rule nv_address{"nv-alignment", TW_ALIGNMENT,
                                 "an operand's address or batch stride is not a multiple of 16 bytes, which skinny "
                                 "needs",
                                 "align it, or use the multistage pipeline"};
inline constexpr Rule nv_skinny_rows{"nv-skinny-size", TW_LIMIT, "m = {m} is over the {tile_m} rows of this kernel",
                                     "use multistage, or tma_ws on sm_90a"};
inline constexpr Rule nv_skinny_columns{"nv-skinny-size", TW_LIMIT,
                                        "n = {n} is over the {tile_n} columns of this kernel",
                                        "use multistage, or tma_ws on sm_90a"};
inline constexpr Rule nv_skinny_tiled{"nv-skinny-size", TW_LIMIT,
                                      "m = {m}, n = {n} or k = {k} is over 1024, the most of small products",
                                      "use multistage, or tma_ws on sm_90a"};
inline constexpr Rule nv_skinny_k{"nv-skinny-k", TW_DIVISIBILITY, "k = {k} is not a multiple of 8",
                                  "use the multistage or loops pipeline"};
inline constexpr Rule nv_batch{"nv-size", TW_LIMIT, "a batch of {batch} is over 65535", "use the loops pipeline"};

inline const Rule *limits(const Schedule &s, const GemmProblem &p) {
  if (nothing_to_do(p)) return nullptr;
  if (p.k == 0) return &nv_empty_k;
  if (largest_size(p) >= kMostSize) return &nv_size;
  if (unaligned(p.a_stride, p.size_a)) return &nv_stride_a;
  if (unaligned(p.b_stride, p.size_b)) return &nv_stride_b;
  if (!p.aligned) return &nv_address;
  if (s.tiled && largest_size(p) > kMostTiled) return &nv_skinny_tiled;
  if (!s.tiled && s.few_columns && p.n > s.tile_n) return &nv_skinny_columns;
  if (!s.tiled && !s.few_columns && p.m > s.tile_m) return &nv_skinny_rows;
  if (p.k % kLoad) return &nv_skinny_k;
  return p.batch > kMostBatch ? &nv_batch : nullptr;
}

}  // namespace skinny
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
