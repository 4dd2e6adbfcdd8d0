// direct: register blocks straight from where A and B lie.  What it takes.
#pragma once
#include <tilewright/cpu/gemm/cost.h>
#include <tilewright/cpu/gemm/direct/limits.h>

namespace tw {
namespace selection {
namespace cpu_gemm {
namespace direct {

// Cycles per element of k: whole register blocks, then halves of them, which wait for their own accumulators.
inline double of_rows(int64_t rows, int64_t block, int64_t vectors) {
  double cycles = double(rows / block * block * vectors) / 1.94;
  int64_t left = rows % block;
  const int64_t parts[] = {8, 4, 2, 1};
  for (int64_t part : parts) {
    if (part >= block) continue;
    cycles += double(left / part) * slower(4.0, double(part * vectors) / 1.94);
    left %= part;
  }
  return cycles;
}

inline int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// How often B's columns fill the cache; rows a power of two apart share its sets, and a panel of many such rows does
// not stay, however small.
inline double cache_fills(const Query &x, double bytes) {
  const double full = bytes / double(larger(1, x.host.l2_bytes));
  const bool counted = x.rate.ways >= 1 && x.rate.ways <= 1024;  // a file may say anything
  const int64_t sets = larger(1, x.host.l2_bytes / (counted ? 64 * int64_t(x.rate.ways) : 64));
  const int64_t pitch = x.p.b_stride * x.p.size_b;
  const bool shared =
      pitch % 64 == 0 && double(Wide(x.p.k) * common_divisor(pitch / 64, sets)) > 0.75 * x.rate.ways * double(sets);
  return shared ? slower(full, 2.0) : full;
}

// The columns of B are read again for every row of register blocks.
inline double read_again(const Schedule &s, const Query &x, int64_t rows, int64_t columns, int64_t groups) {
  const double size = double(Wide(columns) * x.p.k * x.p.size_b), full = cache_fills(x, size);
  const double cost = full <= 0.2 ? 0.0 : full <= 0.35 ? 0.004 : full <= 0.6 ? 0.014 : full <= 1.3 ? 0.02 : 0.06;
  const double passes = double(rows) / double(s.rows);
  double extra = passes * size * cost;
  const double written = double(Wide(rows) * columns * x.p.size_c);
  if (written > double(x.host.l2_bytes)) extra += written * 0.05;  // results leave in narrow columns, page after page
  if (full > 1.3) extra += size * 0.25;  // the first pass jumps from page to page, where nothing looks ahead
  if (x.p.type_b != fp32) extra += passes * double(groups) * double(columns) / 16 * 1.2;
  if (x.p.type_a != fp32 || !x.p.a_rows)
    extra += double(Wide(rows) * groups) * (x.p.a_rows ? x.rate.pack_a : x.rate.turn_a);
  return extra;
}

inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const int64_t cores = team(x), width = selection::cpu_gemm::width(x), groups = ceil_div(p.k, s.step);
  const int64_t share = ceil_div(cores, larger(1, p.batch)), waves = ceil_div(p.batch * share, cores);
  double best = __builtin_inf();
  const int64_t layouts[] = {int64_t(1), share};
  for (int64_t across : layouts) {  // threads below each other, or side by side
    const int64_t rows = ceil_div(p.m, share / across), columns = round_up(ceil_div(p.n, across), width);
    const double cycles =
        double(columns) / double(s.columns) * double(groups) * of_rows(rows, s.rows, s.columns / width);
    const double tiles = (double(rows) / double(s.rows) + 0.5) * (double(columns) / double(s.columns) + 0.5);
    best = faster(best, cycles + tiles * 45.0 + read_again(s, x, rows, columns, groups));
  }
  return seconds_of(x, best * double(waves));
}

}  // namespace direct
}  // namespace cpu_gemm
}  // namespace selection
}  // namespace tw
