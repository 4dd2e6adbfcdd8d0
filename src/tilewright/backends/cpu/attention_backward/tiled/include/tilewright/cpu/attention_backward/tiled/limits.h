// tiled: grad of many rows; rows in lanes, blocks of keys whose dk and dv stay in the cache.  It refuses nothing.
#pragma once
#include <tilewright/select/attention_backward.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {
namespace tiled {

// `rows` of an iteration, `keys` of a block; `deep`, `vectors`: of a register block; `step`: elements that a
// multiply-accumulate takes in a lane.
#define TW_SELECT_CPU_ATTENTION_BACKWARD_TILED(X) X(rows) X(keys) X(deep) X(vectors) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_ATTENTION_BACKWARD_TILED)

inline const Rule *limits(const Schedule &, const AttentionBackward &) { return nullptr; }

}  // namespace tiled
}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
