// winograd: minimal filtering of 3 x 3 windows, squares of results as products of transformed matrices.
// What it takes.
#pragma once
#include <tilewright/cpu/conv/cost.h>
#include <tilewright/cpu/conv/winograd/limits.h>

namespace tw {
namespace selection {
namespace cpu_conv {
namespace winograd {

inline int64_t squares(const Schedule &s, const Query &x) {
  int64_t tiles = x.c.p.batch * made(x)[0];
  for (int axis = 1; axis < 3; ++axis) {
    const int64_t dilation = x.c.dilation[axis];
    tiles *= dilation * ceil_div(ceil_div(made(x)[axis], dilation), s.results);
  }
  return tiles;
}

inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const Gathered g = gathered(x.c);
  const int64_t cores = team(x), width = cpu_conv::width(x), groups = c.p.groups, deep = c.window[0];
  const int64_t points = (s.results + 2) * (s.results + 2), tiles = squares(s, x);
  const int64_t panels = ceil_div(g.columns, s.columns), vectors = s.columns / width;
  int64_t here = ceil_div(tiles, cores), parts = 1;
  if (here < 2 * s.rows && groups == 1) here = tiles, parts = smaller(cores, panels);  // too few tiles: of channels
  here = round_up(here, larger(1, s.rows / 2));
  const int64_t mine = ceil_div(panels, parts);
  const double blocks = double(here) / double(s.rows) * double(mine) * double(groups), dots = double(points);
  const double products = real(Wide(deep) * g.depth * s.rows * vectors);
  double cycles = blocks * dots * (products * 1.05 * multiply_add(x, s.columns) + kBlock + kSave * double(s.rows));
  cycles += real(Wide(groups) * here * deep) * (double(ceil_div(g.depth, width) * points) * 6.0 + 400.0);
  const double results = double(s.results * s.results);
  cycles += real(Wide(groups) * here * mine * vectors) * (dots * 3.0 + results * 8.0);
  cycles += real(Wide(groups) * here) * 300.0;
  // Weights that fit no cache are read from memory for every block of tiles.
  const Wide weights = Wide(groups) * panels * s.columns * deep * g.depth, bytes = weights * points * 4;
  const double rounds = slower(1.0, double(here) / double(s.tile_m));
  const double reread = rounds * real(weights) * dots * 4 / double(parts);
  cycles += reread * (bytes < 1 << 20 ? 0.02 : bytes < 12 << 20 ? 0.08 : 0.25);
  cycles += real(weights) * (9 * kTranspose + dots * 0.35) / double(cores);
  if (c.p.size == 2) cycles *= 1.35;  // narrow floats are widened and rounded
  return seconds_of(x, cores, cycles, transposed(x));
}

}  // namespace winograd
}  // namespace cpu_conv
}  // namespace selection
}  // namespace tw
