// loops: any size, stride and element type; the floor.  What it takes.
#pragma once
#include <tilewright/cpu/gemm/cost.h>
#include <tilewright/cpu/gemm/loops/limits.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace loops {

inline double seconds(const Schedule &, const Query &x) {
  const double macs = double(multiply_adds(x.p));
  return (x.rate.call + 4.0 * macs / double(larger(1, x.host.threads))) / x.rate.cycles_per_second;
}

}  // namespace loops
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
