// What the kernels of attention on a CPU share: cycles of a core, and how many cores take part.
#pragma once
#include <tilewright/select/attention.h>
#include <tilewright/select/threads.h>

namespace tw {
namespace selection {
namespace cpu_attention {

// Cycles of a core, and bytes a cycle from memory; what each means stands in rates.py.
// clang-format off
#define TW_SELECT_CPU_ATTENTION_RATES(X) \
  X(cycles_per_second) X(call) X(wake) X(memory) X(loop) X(weight) X(touch) X(tile) X(turn) X(pack) X(fold) X(block) \
  X(row) X(near) X(items)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CPU_ATTENTION_RATES)

#define TW_SELECT_CPU_ATTENTION_ARCH(X) X(vector_bytes)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CPU_ATTENTION_ARCH)

using Query = AttentionQuery<Rates, Arch>;
inline int64_t width(const Query &x) { return x.arch.vector_bytes / 4; }

inline int64_t team(const Query &x) {
  const Wide wanted = x.a.flops / 2 / Wide(kSmallestShare) + 1;
  return larger(1, wanted < x.host.threads ? int64_t(wanted) : x.host.threads);
}

inline double seconds_of(const Query &x, double cycles) {
  return (x.rate.call + (team(x) > 1 ? x.rate.wake : 0.0) + cycles) / x.rate.cycles_per_second;
}

// What each vector of scores meets before it becomes weights.
inline double touches(const AttentionProblem &p) {
  return double((p.bias != kNoBias) + (p.masked != 0) + 3 * (p.softcap != 0));
}

inline double head_elements(const AttentionProblem &p) { return double(p.head_dim + p.head_dim_v); }

}  // namespace cpu_attention
}  // namespace selection
}  // namespace tw
