// What the kernels of GEMM on NVIDIA GPUs share: rates, and how blocks are dealt their work.
#pragma once
#include <math.h>
#include <tilewright/cuda/gemm/rules.h>
#include <tilewright/select/parts_of_k.h>

namespace tw {
namespace selection {
namespace cuda_gemm {

// Constants of the arch table (arch/fits.json); what each means stands in backends/cuda/gemm/rates.py.
// clang-format off
#define TW_SELECT_CUDA_GEMM_RATES(X) \
  X(parts_plain_macs) X(parts_mma_macs) X(parts_wide_macs) X(parts_wide_bytes) X(parts_sync) X(parts_sums) \
  X(start) X(memory) X(cache) X(astray) X(macs) X(one_cache) X(fill) X(store_results) X(store_least) X(staging) X(wide_staging) \
  X(singles) X(hidden) X(hidden_least) X(over) X(soft) X(per_step) X(per_neighbour) X(swap_ab) X(rate_floor) \
  X(rate_columns) X(rate_rows) X(hand_over) X(exchange) X(neighbour) X(sync) X(sums) X(copy_start) X(copy) \
  X(skinny_memory) X(skinny_latency) X(skinny_registers) X(skinny_tail) X(skinny_warp) X(skinny_turn) \
  X(skinny_gather) X(tiled_fill) X(tiled_warp) X(tiled_round) X(tiled_turn) X(tiled_gather) X(tiled_cache) \
  X(tiled_memory) X(mma_macs) X(shared) X(copies) X(alone) X(stage_turn) X(stages_fill) X(loops_macs) X(loops_turn) \
  X(plain_issue) X(plain_fill) X(plain_store_results) X(plain_hand) X(plain_handed) X(plain_sync) X(plain_sums) \
  X(wide_macs) X(wide_issue) X(wide_cache) X(wide_turn) X(wide_fill) X(wide_store_results) X(wide_sync) X(wide_sums)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CUDA_GEMM_RATES)

#define TW_SELECT_CUDA_ARCH(X) X(compute_units) X(scratch_bytes)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CUDA_ARCH)

using Query = GemmQuery<Rates, Arch>;

// Powers are most of what an estimate takes.  Those of numbers that are the same in many questions, or of many kernels in
// one, are kept by each thread: a place is for numbers of one kind, so that it is seldom taken by another.
struct Power {
  double base = 0, exponent = __builtin_nan(""), value = 0;  // of nothing yet: no exponent is equal to that
};
constexpr int kPowers = 128;
struct Powers {
  Power multiply[kPowers], fetch[kPowers], memory[2], skinny_memory;
};

inline Powers &powers() {
  static thread_local Powers mine;
  return mine;
}
inline double kept_power(Power &mine, double base, double exponent) {
  if (mine.base != base || mine.exponent != exponent) mine = {base, exponent, pow(base, exponent)};
  return mine.value;
}

// Of two things that go on at the same time, and are in each other's way where they take equally long.
inline double slowest_of_powers(const Rates &r, double x, double y) { return pow(x + y, 1.0 / r.soft); }
// `same`: of what is the same for many kernels.
inline double slowest(const Rates &r, double x, Power &same, double y) {
  return slowest_of_powers(r, pow(x, r.soft), kept_power(same, y, r.soft));
}

// Splits of k of a kernel whose blocks have a multiprocessor each.
inline int64_t parts_of(int64_t tiles, int64_t steps, int64_t clusters) {
  return even_parts(steps, parts_at_once(tiles, steps, clusters));
}

// stream_k: k-blocks of the busiest worker, and tiles of accumulators it takes from others.
struct Streamed {
  int64_t steps, takes;
};

inline Streamed streamed(int64_t tiles, int64_t steps, int64_t workers) {
  const int64_t rest = streamed_tiles(tiles, workers);
  const int64_t share = rest ? streamed_share(rest, steps, workers) : 0;
  const int64_t takes = share % steps ? larger(1, ceil_div(steps, share) - 1) : 0;
  return {share + (tiles - rest) / workers * steps, takes};
}

}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
