// What the kernels of GEMM on a CPU share: rates, and how many cores take part.
#pragma once
#include <tilewright/select/gemm.h>
#include <tilewright/select/threads.h>

namespace tw {
namespace selection {
namespace cpu_gemm {

// Cycles, and bytes a cycle, of a core.
// clang-format off
#define TW_SELECT_CPU_GEMM_RATES(X) \
  X(cycles_per_second) X(call) X(wake) X(memory) X(pack_a) X(pack_a_far) X(turn_a) X(pack_b_near) X(pack_b_far) \
  X(turn_b) X(fold) X(fold_transposed) X(ways)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CPU_GEMM_RATES)

#define TW_SELECT_CPU_ARCH(X) X(vector_bytes)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CPU_ARCH)

using Query = GemmQuery<Rates, Arch>;
inline int64_t width(const Query &x) { return x.arch.vector_bytes / 4; }

inline int64_t team(const Query &x) {
  const Wide wanted = multiply_adds(x.p) / Wide(kSmallestShare) + 1;
  return larger(1, wanted < x.host.threads ? int64_t(wanted) : x.host.threads);
}

// A call takes no less than memory needs.
inline double seconds_of(const Query &x, double cycles) {
  const int64_t cores = team(x);
  const double floor = x.moved / (x.rate.memory * double(cores));
  const double start = x.rate.call + (cores > 1 ? x.rate.wake : 0.0);
  return (start + slower(floor, cycles)) / x.rate.cycles_per_second;
}

}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
