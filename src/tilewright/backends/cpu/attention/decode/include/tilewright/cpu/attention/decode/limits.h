// decode: a few rows, and a cache that is read once, its keys shared among threads.  What it refuses.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace cpu_attention {
namespace decode {

// `rows` of a pass, `keys` of a block; `step`: elements that a multiply-accumulate takes in a lane.
#define TW_SELECT_CPU_ATTENTION_DECODE(X) X(rows) X(keys) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_ATTENTION_DECODE)

inline constexpr Rule cpu_rows{
    "cpu-rows", TW_LIMIT,
    "{seqlen_q} queries of {heads_q} heads over {heads_kv} KV heads: more than 64 query rows share a KV head",
    "use tiled"};
constexpr int64_t kMostRows = 64;  // of the query heads that share a head of keys

inline const Rule *limits(const Schedule &, const Attention &a) {
  return a.p.seqlen_q * a.group > kMostRows ? &cpu_rows : nullptr;
}

}  // namespace decode
}  // namespace cpu_attention
}  // namespace selection
}  // namespace tw
