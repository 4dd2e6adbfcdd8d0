// packed, preshuffle: panels of A and B are packed into cache blocks.  What it takes.
#pragma once
#include <tilewright/cpu/gemm/cost.h>
#include <tilewright/cpu/gemm/packed/limits.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace packed {

// Panels of A for every cache block along n, and of B once, unless they were packed beforehand.
inline double packing(const Schedule &s, const Query &x, int64_t rows, int64_t columns, int64_t groups) {
  const int64_t groups_here = ceil_div(groups, s.split_k), times = ceil_div(columns, s.tile_n);
  const double l2 = double(x.host.l2_bytes);
  const bool far = columns <= 128 && double(rows * groups_here * 4) > l2 * 0.5;
  const double each = !x.p.a_rows ? x.rate.turn_a : far ? x.rate.pack_a_far : x.rate.pack_a;
  const double cycles = double(Wide(rows) * groups_here * times) * each;
  if (s.b_packed) return cycles;
  const bool near = double(columns * groups * 4) <= l2 * 0.8;
  const double transposed = x.p.b_rows ? x.rate.pack_b_near : x.rate.turn_b;
  return cycles + double(columns * groups_here) * (near ? transposed : x.rate.pack_b_far);
}

inline double cycles_of(const Schedule &s, const Query &x, int64_t rows, int64_t columns, int64_t groups) {
  const int64_t width = selection::cpu_gemm::width(x), groups_here = ceil_div(groups, s.split_k);
  const int64_t blocks = larger(1, ceil_div(groups_here * s.step, s.tile_k));
  double cycles = double(rows * columns) / double(width) * double(groups_here);
  cycles = cycles / (s.columns == 3 * width ? 1.91 : 1.86);
  const double tiles = (double(rows) / double(s.rows) + 0.5) * (double(columns) / double(s.columns) + 0.5);
  cycles += tiles * double(blocks) * (40.0 + 1.6 * double(s.rows) * double(s.columns) / double(width));
  return cycles + packing(s, x, rows, columns, groups);
}

inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const int64_t cores = team(x), groups = ceil_div(p.k, s.step);
  const int64_t share = ceil_div(cores, larger(1, p.batch * s.split_k));
  const int64_t waves = ceil_div(p.batch * s.split_k * share, cores);
  double best = __builtin_inf();
  const int64_t layouts[] = {int64_t(1), share};
  for (int64_t across : layouts) {  // threads below each other, or side by side
    const int64_t rows = round_up(ceil_div(p.m, share / across), s.rows);
    best = faster(best, cycles_of(s, x, rows, round_up(ceil_div(p.n, across), width(x)), groups));
  }
  double cycles = best * double(waves);
  if (s.split_k > 1)
    cycles = cycles + x.rate.wake + double(Wide(p.batch) * p.m * p.n * s.split_k) * 0.5 / double(cores);
  return seconds_of(x, cycles);
}

}  // namespace packed
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
