// direct_wgrad: gradients of weights of few channels, taps and channels by filters in lanes; no patches.
// What it takes.
#pragma once
#include <tilewright/cpu/conv/cost.h>
#include <tilewright/cpu/conv/direct_wgrad/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace direct_wgrad {

constexpr int64_t kEnough = 16;  // splits of the work: fewer items are split along the lines

inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const int64_t cores = team(x), width = cpu_conv::width(x), channels = c.group_channels, groups = c.p.groups;
  const int64_t joined = c.dilation[2] == 1 ? c.window[2] : 1, entries = joined * channels;
  const int64_t chunks = ceil_div(entries, s.rows), rows = c.taps / joined;
  const int64_t vectors = ceil_div(c.group_filters, width), blocks = ceil_div(c.group_filters, s.columns);
  const int64_t items = groups * ceil_div(c.group_filters, s.tile_n), pixels = c.p.batch * c.out.product();
  // A pixel of a block: its multiply-adds, its vectors of gradients, and going on to the next.
  double each = real(Wide(entries) * vectors) * 1.04 * multiply_add(x);
  each = each + double(chunks) * (double(vectors) * 1.75 + double(blocks) * 2.0);
  each = each / double(larger(1, s.step));  // pairs at once
  double cycles = real(Wide(groups) * rows * pixels) * each * (met(c, 0) * met(c, 1));
  const int64_t run = smaller(c.out[2] * c.out[1], larger(c.out[2], s.tile_k));
  const double runs = double(pixels) / double(run);
  const double calls = double(blocks * chunks) * kBlock / 2, saves = 1.5 * kSave * double(entries) * double(vectors);
  cycles += real(Wide(groups) * rows) * runs * (calls + saves);
  cycles += real(Wide(groups) * pixels * vectors) * 2.0;  // gradients packed
  const double line = groups == 1 ? double(channels) / double(width) + 0.1 : double(ceil_div(channels, width)) + 2.0;
  const double passes = s.step == 2 ? 5.0 : 2.0;  // pairs are joined once the halves are there
  cycles += real(Wide(items) * c.p.batch * c.size.product() * c.window[0]) * line * passes;
  const int64_t bands = smaller(kEnough, larger(1, kEnough / items));
  cycles += real(Wide(items) * s.tile_n * c.taps * channels) * (0.4 + 0.15 * double(bands));
  return seconds_of(x, cores, cycles / double(cores), transposed(x));
}

}  // namespace direct_wgrad
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
