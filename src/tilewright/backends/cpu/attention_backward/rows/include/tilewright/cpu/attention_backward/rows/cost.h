// rows: dot and convert, a row at a time in vectors.  What it takes.
#pragma once
#include <tilewright/cpu/attention_backward/cost.h>
#include <tilewright/cpu/attention_backward/rows/limits.h>

namespace tw {
namespace selection {
namespace cpu_attention_backward {
namespace rows {

inline double seconds(const Schedule &s, const Query &x) {
  const double rows = double(x.a.rows_of_all()), blocks = rows / double(s.rows) + 1.0;
  const double cycles = slower(double(x.a.moved) / x.rate.memory, double(x.a.flops) / double(width(x))) + blocks * 50.0;
  return seconds_of(x, cycles / double(larger(1, smaller(x.host.threads, int64_t(blocks)))));
}

}  // namespace rows
}  // namespace cpu_attention_backward
}  // namespace selection
}  // namespace tw
