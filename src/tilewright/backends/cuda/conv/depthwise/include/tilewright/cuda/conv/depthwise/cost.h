// depthwise: a filter for each channel; threads slide its window over strips of pixels in registers.  What it takes.
#pragma once
#include <tilewright/cuda/conv/copies_cost.h>
#include <tilewright/cuda/conv/depthwise/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace depthwise {

// The slower of memory and multiply-adds.  Strips reach over edges, rows are read again, and threads must be enough.
inline double seconds_as_laid_out(const Schedule &s, const Query &x) {
  constexpr double strips_rate = 0.7;  // of memory's rate that strips of pixels reach: each thread waits for its own
  constexpr double tap = 3.0;          // how much longer a multiply-add takes where nothing slides
  constexpr double rolled = 0.8;       // and how much of it where a row is read once
  constexpr double one_channel = 2.0, one_weight = 3.5;  // how much longer where a thread has no vector of channels
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  const Sizes &to = p.variant == backward_data ? c.size : c.out;
  const double window = double(s.filter_size), pixels = double(s.pixels);
  double idle = double(round_up(to[2], s.pixels)) / double(to[2]), each = tap;
  if (s.filter_size && s.rolling_rows) {
    idle *= double(round_up(to[1], s.rolling_rows)) / double(to[1]);
    each = rolled * (1.0 + (window - 1) / double(s.rolling_rows) * 0.5);
  } else if (s.filter_size) {
    each = 1.0 + double((s.pixels - 1) * s.stride + s.filter_size) / pixels / window;
  }
  const int64_t bands = s.rolling_rows && p.dims > 1 ? ceil_div(to[1], s.rolling_rows) : to[1];
  const Wide threads = Wide(p.batch) * to[0] * bands * ceil_div(to[2], s.pixels) * (p.channels / s.vector);
  idle *= slower(1.0, r.enough / double(threads > 1 ? threads : Wide(1)));
  const bool weight = p.variant == backward_weight;
  const double longer = s.vector > 1 ? 1.0 : weight ? one_weight : one_channel;
  const double body = slower(multiply_adds(c) * idle * each / r.fmas, c.moved / (strips_rate * r.through));
  return r.start + body * longer + (weight ? r.add_start : 0.0);
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_in_copies(s.copies, needs, x, [&](const Query &laid_out) { return seconds_as_laid_out(s, laid_out); });
}

}  // namespace depthwise
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
