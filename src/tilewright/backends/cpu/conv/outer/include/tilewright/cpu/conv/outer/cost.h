// outer: wgrad as outer products, filters by channels, pixels go by.  What it takes.
#pragma once
#include <tilewright/cpu/conv/cost.h>
#include <tilewright/cpu/conv/outer/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace outer {

// Of few channels, taps and channels are columns together.
struct Columns {
  bool patches;
  int64_t count, places;
};
inline Columns columns_of(const Conv &c) {
  const bool patches = c.group_channels < kFew && c.taps > 1;
  return patches ? Columns{true, c.taps * c.group_channels, 1} : Columns{false, c.group_channels, c.taps};
}

inline double multiplying(const Schedule &s, const Query &x, const Columns &columns, int64_t filters) {
  const Conv &c = x.c;
  const int64_t width = cpu_conv::width(x), wide = round_up(columns.count, width), pixels = c.p.batch * c.out.product();
  const int64_t packed_rows = larger(1, smaller(c.out[1], larger(1, s.tile_k / c.out[2])));
  const double runs = real(Wide(c.p.batch) * c.out[0] * c.out[1]) / double(packed_rows);
  const int64_t panels = ceil_div(columns.count, s.columns);
  // A pixel of a block: its multiply-adds, and going on to the next.
  const double product = 1.15 * multiply_add(x, s.columns);
  const int64_t step = larger(1, s.step);
  const double each = real(Wide(s.rows) * wide) / double(width) * product / double(step) + double(panels);
  const double groups = double(c.p.groups);
  double cycles = real(Wide(c.p.groups) * filters) / double(s.rows) * double(columns.places) * double(pixels) * each;
  if (!columns.patches) cycles = cycles * (met(c, 0) * met(c, 1) * met(c, 2));
  const double calls = groups * (double(filters) / double(s.rows)) * double(panels) * double(columns.places) * runs;
  cycles += calls * (kBlock / 2 + kSave * 1.5 * double(s.rows) * double(s.columns) / double(width));
  const int64_t tiles_n = larger(1, ceil_div(columns.count, s.tile_n));
  const int64_t tiles_m = larger(1, ceil_div(c.group_filters, s.tile_m));
  const int64_t packed = (c.window[1] * c.window[2] == 1 ? c.out : c.size).product();  // one tap: pixels that are met
  const double gathered = real(Wide(pixels) * columns.count) * 1.3;
  const double copied = real(Wide(c.p.batch) * packed * wide) * 0.5;
  cycles += real(Wide(c.p.groups) * tiles_m) * (columns.patches ? gathered : copied);
  return cycles + real(Wide(c.p.groups) * tiles_n * pixels * filters) * kCopy;
}

inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const int64_t cores = team(x), filters = round_up(c.group_filters, s.rows);
  const Columns columns = columns_of(c);
  const int64_t items = c.p.groups * (filters / s.rows) * ceil_div(columns.count, s.columns) * s.split_k;
  double cycles = multiplying(s, x, columns, filters) / double(smaller(cores, items));
  if (s.split_k > 1) cycles += x.rate.wake + double(s.split_k) * c.w_elements() * 0.6 / double(cores);
  return seconds_of(x, cores, cycles, transposed(x));
}

}  // namespace outer
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
