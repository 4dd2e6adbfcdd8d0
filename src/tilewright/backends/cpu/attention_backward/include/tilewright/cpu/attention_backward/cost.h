// What the CPU's kernels of attention's gradients share: cycles of a core, and how many cores take part.
#pragma once
#include <tilewright/select/attention_backward.h>
#include <tilewright/select/threads.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {

// Cycles of a core, and bytes a cycle from memory; what each means stands in rates.py.
// clang-format off
#define TW_SELECT_CPU_ATTENTION_BACKWARD_RATES(X) \
  X(cycles_per_second) X(call) X(wake) X(memory) X(loop) X(multiply) X(weight) X(touch) X(block) X(pack)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CPU_ATTENTION_BACKWARD_RATES)

#define TW_SELECT_CPU_ATTENTION_BACKWARD_ARCH(X) X(vector_bytes)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CPU_ATTENTION_BACKWARD_ARCH)

using Query = AttentionBackwardQuery<Rates, Arch>;
inline int64_t width(const Query &x) { return x.arch.vector_bytes / 4; }

inline int64_t team(const Query &x) {
  const Wide wanted = x.a.flops / 2 / Wide(kSmallestShare) + 1;
  return larger(1, wanted < x.host.threads ? int64_t(wanted) : x.host.threads);
}

inline double seconds_of(const Query &x, double cycles) {
  return (x.rate.call + (team(x) > 1 ? x.rate.wake : 0.0) + cycles) / x.rate.cycles_per_second;
}

// What each vector of scores meets before it becomes weights.
inline double touches(const AttentionBackwardProblem &p) {
  return double((p.bias != kNoBackwardBias) + (p.masked != 0) + 3 * (p.softcap != 0));
}

}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
