// implicit: forward and backward-data as a GEMM that reads its operand where it lies.  What it takes.
#pragma once
#include <tilewright/cpu/conv/cost.h>
#include <tilewright/cpu/conv/implicit/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace implicit {

constexpr double kPoint = 4.0;          // a pointer to a pixel
constexpr double kStore = 25.0;         // a row of results through a scratch block
constexpr double kNarrow = 16.0;        // a row of fewer than four vectors written beyond every cache
constexpr int64_t kFarWords = 1 << 18;  // from here on packed weights come from memory

inline int64_t common_divisor(int64_t x, int64_t y) { return y ? common_divisor(y, x % y) : x; }

// Whether pixels lie so that a kernel copies them apart; as in conv/words.h.
inline bool shared_sets(const Query &x, int64_t rows) {
  const bool ahead = x.c.p.variant == forward;
  const Wide apart = Wide(ahead ? x.c.p.channels : x.c.p.filters) * 4 * (ahead ? x.c.stride[2] : 1);
  return rows > 8 * 4096 / common_divisor(4096, int64_t(apart % 4096)) * 3 / 4;
}

// Groups that fill a panel together where one does not.
inline int64_t bundle_of(const Schedule &s, const Query &x, int64_t columns) {
  if (columns >= s.columns) return 1;
  int64_t bundle = smaller(x.c.p.groups, s.columns / columns);
  while (x.c.p.groups % bundle) --bundle;
  return bundle;
}

struct Panels {
  int64_t bundle, words, count;
};

// The products of threads that stand `across` side by side.
inline double multiplying(const Schedule &s, const Query &x, const Panels &panels, int64_t team, int64_t across) {
  const Conv &c = x.c;
  const Gathered g = gathered(x.c);
  const int64_t rows = round_up(ceil_div(g.positions, team / across), larger(1, s.rows / 2));
  const int64_t here = ceil_div(panels.count, across), vectors = s.columns / width(x);
  const int64_t saves = larger(1, ceil_div(c.taps * panels.words * s.step, s.tile_k));
  const bool joined = g.depth < kFew && c.p.groups == 1 && c.p.variant == forward && s.step <= 2;
  const double blocks = double(rows) / double(s.rows) * double(here), taps = double(c.taps);
  double cycles = blocks * taps * double(panels.words) * double(s.rows) * double(vectors);
  cycles = cycles * (1.05 + 0.004 * double(s.rows)) * multiply_add(x, s.columns);
  cycles += blocks * double(saves) * (kBlock + kSave * double(s.rows) * double(vectors));
  cycles += double(rows) * (taps / double(joined ? c.window[2] : 1)) * kPoint;
  cycles += blocks * taps * 1.2 * double(s.rows);
  if (vectors < 4 && far_results(x)) cycles += real(Wide(rows) * here) * kNarrow;
  return cycles;
}

// Results that lie apart, or do not fill a panel, leave through a scratch block, a row at a time.
inline double leaving(const Schedule &s, const Query &x, const Panels &panels, int64_t columns) {
  const bool apart = back(x.c) && larger(larger(x.c.stride[0], x.c.stride[1]), x.c.stride[2]) > 1;
  if (!apart && columns * panels.bundle % s.columns == 0) return 0.0;
  const int64_t rows = x.c.p.batch * made(x).product();
  if (apart) return real(Wide(rows) * panels.count) * kStore;
  return double(rows) * (double(panels.count) / double(larger(1, columns / s.columns))) * kStore;
}

inline double packing(const Schedule &s, const Query &x, const Panels &panels, int64_t depth) {
  const Wide weights = Wide(panels.count) * s.columns * x.c.taps * panels.words;
  const double cycles =
      real(weights) * (x.c.p.variant == forward ? kTranspose : kCopy) * (weights < kFarWords ? 1.0 : 2.5);
  if (x.c.p.size != 4 && !(s.step == 2 && depth * panels.bundle % 2 == 0)) return cycles + kCopy * read_elements(x);
  return shared_sets(x, s.rows) ? cycles + 1.0 * read_elements(x) : cycles;
}

inline double seconds(const Schedule &s, const Query &x) {
  const Gathered g = gathered(x.c);
  const int64_t cores = team(x), bundle = bundle_of(s, x, g.columns);
  const Panels panels{bundle, ceil_div(g.depth * bundle, s.step),
                      x.c.p.groups / bundle * ceil_div(g.columns * bundle, s.columns)};
  double best = multiplying(s, x, panels, cores, 1);
  if (cores > 1) best = faster(best, multiplying(s, x, panels, cores, cores));
  best += leaving(s, x, panels, g.columns) / double(cores);
  return seconds_of(x, cores, best + packing(s, x, panels, g.depth) / double(cores), transposed(x));
}

}  // namespace implicit
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
