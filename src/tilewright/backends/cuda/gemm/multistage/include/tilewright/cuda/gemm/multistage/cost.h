// multistage: stages filled by cp.async feed mma.sync (exact fp32: multiply-adds).  What it takes.
#pragma once
#include <tilewright/cuda/gemm/cost.h>
#include <tilewright/cuda/gemm/multistage/limits.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace multistage {

inline int64_t warps(const Schedule &s) { return s.warps_m * s.warps_n; }
inline int64_t tiles_of(const Schedule &s, const GemmProblem &p) {
  return ceil_div(p.m, s.tile_m) * ceil_div(p.n, s.tile_n) * p.batch;
}

// Splits of k of kernels of which several share a multiprocessor; `step` and `alone` as in gpu/multistage_shape.h.
inline int64_t balanced(const Rates &r, int64_t tiles, int64_t steps, int64_t units, int64_t room, double step,
                        double alone, int64_t results) {
  const PartCosts costs{step, alone, r.parts_sync, double(results * 8) / r.parts_sums};
  return even_parts(steps, balanced_parts(tiles, steps, units, room, costs));
}

// -- two bytes and one byte: tensor cores -----------------------------------------------------------------------------

struct Traffic {
  double through = 0.0, issued = 0.0;  // bytes written to shared memory and read from it; copies

  // `realigned`: the operand is moved into place in shared memory (`Operand::realigned` in multistage_shape.h).
  void add(int64_t size, int64_t lines, int64_t repeated, bool along_k, int64_t vector, int64_t k, int64_t size_a) {
    const bool realigned = vector * size < 4 || (size == 1 && !along_k);
    const double moved = realigned ? 2.7 : 0.0, narrow = realigned ? 1.0 : 16 / double(vector * size);
    through += double(lines * k * size_a) * (narrow + moved + double(repeated));
    issued += double(lines * k * size_a) / 16 * narrow;
  }
};

inline double mma_seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const int64_t m = s.tile_m, n = s.tile_n, k = s.tile_k, units = x.arch.compute_units;
  // How many blocks a multiprocessor holds: by shared memory and by registers.
  const int64_t registers = 32 * warps(s) * smaller(256, 2 * (m * n / (warps(s) * 32)) + 64);
  const int64_t held = larger(1, smaller(x.arch.scratch_bytes / s.shared_bytes, 65536 / registers));
  const int64_t tiles = tiles_of(s, p), steps = larger(1, ceil_div(p.k, k));
  const int64_t parts = s.tile_scheduler == split_k ? parts_of(tiles, steps, units) : 1, blocks = tiles * parts;
  const int64_t together = larger(1, smaller(held, ceil_div(blocks, units)));  // on the busiest one at a time
  // int8 doubles the rate; fp8 is widened on the way, here or in the hardware.
  const double macs = double(m * n * k) / (p.type_a == int8 ? 2.0 : 1.0);
  Traffic traffic;
  traffic.add(p.size_a, m, s.warps_n, p.a_rows, s.vector_a, k, p.size_a);
  traffic.add(p.size_b, n, s.warps_m, !p.b_rows, s.vector_b, k, p.size_a);
  const int64_t taken = (m + n) * k * p.size_a;
  const double fetched = double(taken * smaller(blocks, units * held)) / double(together);
  const double few = warps(s) * together <= 4 ? 1.0 : 0.0;
  const double multiply = macs / r.mma_macs * (1.0 + (1.0 / r.alone - 1.0) * few) + traffic.issued / r.copies;
  const double step =
      slower(slower(multiply, traffic.through / r.shared), slower(double(taken) / r.one_cache, fetched / r.cache));
  const double turn = slower(step * double(together), r.stage_turn);
  const double out = (r.store_results * (double(m * n) / (128 * 256) * double(together)) + r.store_least) * r.staging;
  const double met = parts > 1 ? 1.0 : 0.0, sums = 8.0 * double(m) * double(n) * double(blocks) * met;
  const double rounds = double(ceil_div(blocks, units * together));
  const double body = rounds * (double(ceil_div(steps, parts)) * turn + out) + r.sync * met + sums / r.sums;
  return r.start + r.stages_fill + slowest(r, body, powers().memory[0], x.moved / r.memory);
}

// -- exact fp32: what warps issue counts, multiply-adds and the rest alike --------------------------------------------

inline double plain_copies(int64_t lines, int64_t vector, bool along_k, int64_t k, int64_t threads) {
  constexpr double per_piece = 4, per_single = 6;  // instructions of a copy of 16 bytes, and of one of four
  const double each = vector == 1 || along_k ? per_single : per_piece / double(vector);
  return double(lines * k) / double(threads) * each;
}

// Instructions of one warp in a k-block.
inline double plain_issued(const Schedule &s, const GemmProblem &p) {
  constexpr int64_t per_step = 40;
  const int64_t m = s.tile_m, n = s.tile_n, k = s.tile_k, threads = 32 * warps(s);
  double issued = double(k * (m * n / threads + m / s.warps_m / 16 + n / s.warps_n / 32) + per_step);
  issued += plain_copies(m, s.vector_a, p.a_rows, k, threads);
  return issued + plain_copies(n, s.vector_b, !p.b_rows, k, threads);
}

// How long the blocks of a multiprocessor take, of which `held` run at a time: few of them wait for themselves.
inline double plain_together(int64_t blocks, int64_t held, int64_t warps, int64_t results) {
  const int64_t rounds = blocks / held, rest = blocks % held;
  if (!rest || rest * warps > 4) return double(blocks);
  return double(rounds * held) + (results <= 64 * 32 * warps ? 1.2 : 2.0);
}

inline double plain_seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const int64_t results = s.tile_m * s.tile_n, units = x.arch.compute_units, threads = 32 * warps(s);
  const int64_t tiles = tiles_of(s, p), steps = larger(1, ceil_div(p.k, s.tile_k));
  const int64_t held = larger(1, (results / threads <= 64 ? 512 : 256) / threads);
  const double step = double(results * s.tile_k) / r.parts_plain_macs;
  const int64_t parts =
      s.tile_scheduler == split_k ? balanced(r, tiles, steps, units, units * held, step, 1.2, results) : 1;
  const int64_t blocks = ceil_div(tiles * parts, units);
  double high = plain_together(blocks, held, warps(s), results), left = double(results * blocks);
  int64_t fills = ceil_div(blocks, held), deep = ceil_div(steps, parts), takes = 0;
  if (s.tile_scheduler == stream_k) {
    const Streamed dealt = streamed(tiles, steps, units * held);
    const int64_t high_now = smaller(held, ceil_div(tiles * steps, dealt.steps * units));
    deep = dealt.steps, takes = dealt.takes, fills = 1 + ceil_div(deep, steps), high = double(high_now);
    left = double(results * high_now * deep) / double(steps);
  }
  const double issued = plain_issued(s, p) * double(warps(s)), stream = s.tile_scheduler == stream_k ? 1.0 : 0.0;
  const double traversed = double(deep) * issued / r.plain_issue * high * (1.0 + (1.05 - 1.0) * stream);
  const double met = parts > 1 ? 1.0 : 0.0;
  const double sums = 8.0 * double(s.tile_m) * double(s.tile_n) * double(tiles) * double(parts) * met;
  const double taken = 4.0 * double(s.tile_m) * double(s.tile_n) * double(takes);
  const double handed =
      r.plain_sync * met + sums / r.plain_sums + r.plain_hand * double(takes) + taken / r.plain_handed;
  const double body = traversed + r.plain_fill * double(fills) + r.plain_store_results * left + handed;
  return r.start + slower(x.moved / r.memory, body);
}

// -- tf32 -------------------------------------------------------------------------------------------------------------

// Several blocks share a multiprocessor.  A k-block of theirs takes as long as the slowest of the multiplications of all,
// what they fetch from the second-level cache, and the wait for the copies of one, the same however many wait.
inline double wide_seconds(const Schedule &s, const Query &x) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const int64_t m = s.tile_m, n = s.tile_n, k = s.tile_k, units = x.arch.compute_units, threads = 32 * warps(s);
  const bool roomy = m * n / threads <= 32 && smaller(s.vector_a, s.vector_b) == 4;
  const int64_t room = (x.arch.scratch_bytes + 1024) / (s.shared_bytes + 1024);
  const int64_t most = larger(1, smaller(larger(1, (roomy ? 512 : 384) / threads), room));
  const int64_t tiles = tiles_of(s, p), steps = larger(1, ceil_div(p.k, k));
  const double counted = slower(double(m * n * k) / r.parts_wide_macs, double((m + n) * k * 4) / r.parts_wide_bytes);
  const int64_t parts =
      s.tile_scheduler == split_k ? balanced(r, tiles, steps, units, units * most, counted, 1.5, m * n) : 1;
  const int64_t blocks = ceil_div(tiles * parts, units), together = smaller(most, blocks);
  double through = 4.0 * double(m) * double(k) * (double(s.warps_n) + 4 / double(s.vector_a));
  through += 4.0 * double(n) * double(k) * (double(s.warps_m) + 4 / double(s.vector_b));
  // Rows and columns beyond the matrix are not fetched.
  const double fetched = 4.0 * double(k) * double(smaller(m, p.m) + smaller(n, p.n)) * double(together);
  const double results = 4.0 * double(smaller(m, p.m)) * double(smaller(n, p.n)) * double(blocks);
  const double macs = double(m * n * k * together);
  const double step = slower(slower(macs / r.wide_macs, through * double(together) / r.wide_issue),
                             slower(fetched / r.wide_cache, r.wide_turn));
  const double met = parts > 1 ? 1.0 : 0.0;
  const double sums = 8.0 * double(m) * double(n) * double(tiles) * double(parts) * met;
  const double rounds = double(blocks) / double(together);
  double body = rounds * (double(ceil_div(steps, parts)) * step + r.wide_fill) + results / r.wide_store_results;
  body = body + r.wide_sync * met + sums / r.wide_sums;
  return r.start + slowest(r, body, powers().memory[0], x.moved / r.memory);
}

inline double seconds(const Schedule &s, const Query &x) {
  if (nothing_to_do(x.p)) return x.rate.start;
  if (x.p.type_a == tf32) return wide_seconds(s, x);
  return x.p.type_a == fp32 ? plain_seconds(s, x) : mma_seconds(s, x);
}

}  // namespace multistage
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
