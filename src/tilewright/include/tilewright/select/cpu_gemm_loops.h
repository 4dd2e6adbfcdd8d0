// loops: any size, stride and element type; the floor.
#pragma once
#include <tilewright/select/cpu_gemm.h>

namespace tw {
namespace select {
namespace cpu_gemm {
namespace loops {

#define TW_SELECT_CPU_GEMM_LOOPS(X) X(none)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CPU_GEMM_LOOPS)

inline GemmRule limits(const Schedule &, const Asked &) { return GemmRule::serves; }

inline double seconds(const Schedule &, const Asked &x) {
  const double macs = double(multiply_adds(x.p));
  return (x.rate.call + 4.0 * macs / double(larger(1, x.host.threads))) / x.rate.cycles_per_second;
}

}  // namespace loops
}  // namespace cpu_gemm
}  // namespace select
}  // namespace tw
