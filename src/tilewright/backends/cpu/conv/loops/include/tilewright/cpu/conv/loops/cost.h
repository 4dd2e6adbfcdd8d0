// loops: any size, stride and element type; the floor.  What it takes.
#pragma once
#include <tilewright/cpu/conv/cost.h>
#include <tilewright/cpu/conv/loops/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace loops {

constexpr double kProduct = 6.0;  // cycles

inline double seconds(const Schedule &, const Query &x) {
  const double cycles = kProduct * real(multiply_adds(x.c)) / double(larger(1, x.host.threads));
  return (x.rate.call + cycles) / x.rate.cycles_per_second;
}

}  // namespace loops
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
