// skinny: few rows or few columns against a large matrix, at the speed of memory; the warps share k.  What it takes.
#pragma once
#include <tilewright/cuda/gemm/cost.h>
#include <tilewright/cuda/gemm/skinny/limits.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace skinny {

// Both sides tiled: what one block takes from its start to its end, and what more of them add.
inline double tiled_seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const double warps = double(s.warps), lines = double(s.tile_m + s.tile_n);
  const double blocks = double(ceil_div(p.m, s.tile_m) * ceil_div(p.n, s.tile_n) * p.batch);
  const double turns = double(ceil_div(ceil_div(p.k, p.b_rows ? 32 : 64), s.warps));
  const double registers = r.skinny_registers + (p.b_rows ? 1 : 2) * lines;
  const double held = slower(1.0, faster(floor(64 / warps), floor(2048 / (registers * warps))));
  const double rounds = slower(1.0, blocks / (double(x.arch.compute_units) * held));
  const double gathered = p.a_rows ? 0.0 : double(s.tile_m) / 8 * turns;
  return r.start + r.tiled_fill + r.tiled_warp * warps + r.tiled_round * (rounds - 1) + r.tiled_turn * (turns - 1) +
         r.tiled_gather * gathered + blocks * lines * double(p.k * p.size_a) / r.tiled_cache + x.moved / r.tiled_memory;
}

// The bytes of the large matrix over a bandwidth that grows with the loads in flight.
inline double seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  if (nothing_to_do(p)) return r.start;
  if (s.tiled) return tiled_seconds(s, x);
  const int64_t many = s.few_columns ? p.m : p.n * sums(p);
  const int64_t few = s.few_columns ? s.tile_n : s.tile_m, lines = s.few_columns ? s.tile_m : s.tile_n;
  // Two iterations of 64 k (32 where lines are contiguous) for each row of both tiles wait in the registers of a warp.
  const int64_t deep = (s.few_columns ? p.a_rows : !p.b_rows) ? 2 : 1;
  const bool gathers = s.few_columns ? p.b_rows : !p.a_rows;
  const double turns = double(ceil_div(ceil_div(p.k, 64), s.warps)), warps = double(s.warps);
  const double blocks = double(ceil_div(many, lines) * p.batch), units = double(x.arch.compute_units);
  const double registers = r.skinny_registers + double(deep * (lines + few));
  const double held = slower(1.0, faster(floor(2048 / double(32 * s.warps)), floor(65536 / (registers * 32 * warps))));
  const double rounds = slower(1.0, blocks / (units * held));
  const double idle = 1 + (ceil(blocks / (units * held)) - rounds) * r.skinny_tail / rounds;
  const double flight = faster(blocks, units * held) * (double(s.warps * lines) * 128.0 * double(deep));
  const double streamed =
      slowest(r, x.moved * r.skinny_latency / flight, powers().skinny_memory, x.moved / r.skinny_memory);
  const double gathered = turns * (double(few) / 8) * (gathers ? 1.0 : 0.0);
  const double alone = r.skinny_warp * warps + r.skinny_turn * turns + r.skinny_gather * gathered;
  return r.start + streamed * idle + ceil(rounds) * alone;
}

}  // namespace skinny
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
