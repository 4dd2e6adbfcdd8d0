// planar: vectors along pixels, for results of few channels; what is read is transposed into planes, results back.
// What it takes.
#pragma once
#include <tilewright/cpu/conv/cost.h>
#include <tilewright/cpu/conv/planar/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace planar {

constexpr double kTorn = 14.0;  // a vector of results beyond every cache that is no whole line
constexpr double kLine = 60.0;  // a line of a vector of channels transposed into planes, whatever its length

// Planes are read and written as they are, where neighbours along a line lie side by side.
inline double transposed_here(const Query &x) {
  const ConvProblem &p = x.c.p;
  const bool planes_x = p.x_2 == 1 && (p.variant == forward || x.c.stride[2] == 1), planes_y = p.y_2 == 1;
  return (p.x_channel != 1 && !planes_x ? x.c.x_elements() : 0.0) + (p.w_channel != 1 ? x.c.w_elements() : 0.0) +
         (p.y_channel != 1 && !planes_y ? x.c.y_elements() : 0.0);
}

// Channels of groups that are transposed at a time: how many such bundles there are, and their groups.
struct Bundles {
  int64_t groups, count;
};
inline Bundles bundles_of(const Conv &c, const Gathered &g) {
  const int64_t groups = larger(1, smaller(c.p.groups, kTogether / larger(g.depth, g.columns)));
  return {groups, ceil_div(c.p.groups, groups)};
}

inline double into_planes(const Query &x, const Gathered &g, const Bundles &b) {
  const Wide vectors = Wide(b.count) * ceil_div(g.depth * b.groups, width(x));
  const Wide lines = vectors * x.c.p.batch * read(x).product() * x.c.window[0];
  const Wide times = classes(x) < x.c.taps ? classes(x) : Wide(x.c.taps);
  return real(lines) * (8.0 + kLine / double(read(x)[2])) * real(times);
}

inline double out_of_planes(const Query &x, const Gathered &g, const Bundles &b) {
  const Wide out = Wide(b.count) * ceil_div(g.columns * b.groups, width(x)) * x.c.p.batch * made(x).product();
  const bool torn = g.columns * x.c.p.groups % width(x) > 0 && far_results(x);  // parts of a cache's lines, fetched
  return real(out) * ((classes(x) == 1 ? 5.0 : 9.0) + (torn ? kTorn : 0.0));
}

inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const Gathered g = gathered(x.c);
  const int64_t cores = team(x), stride = back(x.c) ? c.stride[2] : 1;
  const int64_t pieces = ceil_div(g.columns, s.rows), vectors = s.columns / width(x);
  // A line's vectors run on into the next over what is read beside it.
  const int64_t beside = (c.window[2] - 1) * c.dilation[2] / c.stride[2];
  const double parts = real(classes(x)), lines = real(Wide(c.p.batch) * c.p.groups * made(x)[0] * made(x)[1]);
  const double places = lines / (parts / double(stride)) * double(ceil_div(made(x)[2], stride) + beside);
  // A step of a block: its multiply-adds, what it loads (twice where it lies across lines), and going on.
  const double step =
      slower(double(g.columns * vectors), double(pieces * vectors) * 2.0) * multiply_add(x) + double(pieces) * 1.5;
  double cycles = places / double(s.columns) * double(c.taps) * double(g.depth) * step * 1.15;
  const double saves = kSave * double(smaller(s.rows, g.columns)) * double(vectors);
  cycles += parts * places / double(s.columns) * double(pieces) * (kBlock + saves);
  const Bundles bundles = bundles_of(c, g);
  cycles += into_planes(x, g, bundles);
  cycles += out_of_planes(x, g, bundles) + real(Wide(c.taps) * g.depth * g.columns * c.p.groups) * 1.2;
  cycles += c.moved > double(kFarResults) ? 0.07 * c.moved : 0.0;  // what is transposed passes through caches once more
  return seconds_of(x, cores, cycles / double(cores), transposed_here(x));
}

}  // namespace planar
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
