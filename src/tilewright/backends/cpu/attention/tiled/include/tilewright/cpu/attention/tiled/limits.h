// tiled: queries in lanes, keys block by block with a running softmax; for many rows.  What it refuses.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace cpu_attention {
namespace tiled {

// `set`: rows that share what is packed of keys and values; `rows`, `deep`: of a register block; `step`: elements that
// a multiply-accumulate takes in a lane.
#define TW_SELECT_CPU_ATTENTION_TILED(X) X(set) X(rows) X(deep) X(step)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_ATTENTION_TILED)

inline const Rule *limits(const Schedule &, const Attention &) { return nullptr; }

}  // namespace tiled
}  // namespace cpu_attention
}  // namespace selection
}  // namespace tw
