// tiled: tiles of rows and keys multiplied by matrix instructions, in a kernel of our own.  What it refuses.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace hip_attention {
namespace tiled {

// `size`: bytes of an element as it is multiplied; `narrow`: it is converted on its way; `shares`: waves with the same rows.
// clang-format off
#define TW_SELECT_HIP_ATTENTION_TILED(X) X(tile_m) X(tile_n) X(threads) X(wave) X(size) X(narrow) X(scored) X(lean) \
  X(shares)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_HIP_ATTENTION_TILED)

inline constexpr Rule many_rows{"amd-operand-size", TW_LIMIT, "2^30 or more keys, or rows of the heads of one sequence",
                                "use the loops pipeline"};
inline constexpr Rule many_blocks{"amd-tiles", TW_LIMIT,
                                  "more query tiles, heads and splits than a launch has blocks for",
                                  "use larger tiles, or the loops pipeline"};

constexpr int64_t kMostRows = int64_t(1) << 30;     // places in a sequence are int32
constexpr int64_t kMostThreads = int64_t(1) << 32;  // of a launch, along x

inline const Rule *limits(const Schedule &s, const Attention &a) {
  const AttentionProblem &p = a.p;
  if (!(p.batch && p.seqlen_q && p.heads_q)) return nullptr;
  const Wide rows = Wide(p.seqlen_q) * a.group;
  if (rows >= kMostRows || larger(p.seqlen_k, p.sink_tokens) >= kMostRows) return &many_rows;
  const Wide blocks = (rows + s.tile_m - 1) / s.tile_m * p.heads_kv * larger(1, p.num_splits) * p.batch;
  return blocks * s.threads >= kMostThreads ? &many_blocks : nullptr;
}

}  // namespace tiled
}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
