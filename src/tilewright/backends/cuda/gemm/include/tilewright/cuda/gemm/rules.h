// What the limits of GEMM's kernels on NVIDIA GPUs share.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace cuda_gemm {

// What blocks are given: whole tiles, the k-blocks of all of them evenly, splits of k, splits of k in a cluster.
enum TileScheduler : int64_t { data_parallel, stream_k, split_k, cluster_k };

constexpr int64_t kMostSize = int64_t(1) << 31;  // sizes, tiles and k-blocks are counted in 32 bits

inline constexpr Rule nv_empty_k{"nv-empty-k", TW_LIMIT, "k is 0, and this pipeline needs at least one k-block",
                                 "use the loops pipeline"};
inline constexpr Rule nv_size{"nv-size", TW_LIMIT, "m = {m}, n = {n} or k = {k} is 2^31 or more",
                              "use the loops pipeline"};

inline int64_t largest_size(const GemmProblem &p) { return larger(larger(p.m, p.n), p.k); }

// Not a multiple of the 16 bytes that wide copies move.
inline bool unaligned(int64_t stride, int64_t size) { return stride * size % 16 != 0; }

}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
