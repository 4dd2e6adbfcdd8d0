// ws, decode, decode_stream_k: TMA feeds wgmma, warp-specialized and persistent.  What it refuses.
#pragma once
#include <tilewright/cuda/attention/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace ws {

// `head_dim*`: those the kernel holds; `scored`: something is done to scores before the softmax, or dropout after it;
// `packs`: query heads of a head of keys share a tile of rows; `stream_k`: blocks take equal shares of all keys.
// clang-format off
#define TW_SELECT_CUDA_ATTENTION_WS(X) \
  X(tile_n) X(warpgroups) X(stages) X(ctas_per_sm) X(q_stages) X(packs) X(stream_k) X(head_dim) X(head_dim_v) X(scored) \
  X(size_kv)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_ATTENTION_WS)

inline constexpr Rule many_shared_rows{
    "nv-rows", TW_LIMIT,
    "{seqlen_q} queries of {heads_q} heads over {heads_kv} KV heads: more than 64 query rows share a KV head",
    TW_OTHER};
inline constexpr Rule many_tiles{"nv-size", TW_LIMIT, "2^30 or more tiles of keys", TW_OTHER};

inline const Rule *limits(const Schedule &s, const Attention &a) {
  const AttentionProblem &p = a.p;
  if (nothing_to_do(p)) return nullptr;
  if (s.stream_k && !store_limits(p)) {
    if (p.seqlen_q * a.group > kRows) return &many_shared_rows;
    if (Wide(p.batch) * p.heads_kv * larger(1, ceil_div(p.seqlen_k, s.tile_n)) >= kMost) return &many_tiles;
  }
  return tma_limits(a, s.packs);
}

}  // namespace ws
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw
