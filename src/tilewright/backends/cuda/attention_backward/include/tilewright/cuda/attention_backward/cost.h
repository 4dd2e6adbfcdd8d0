// What the costs of attention's gradients on NVIDIA GPUs share.
#pragma once
#include <math.h>
#include <tilewright/cuda/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention_backward {

// Constants of the arch table (arch/fits.json); what each means stands in rates.py.
// clang-format off
#define TW_SELECT_CUDA_ATTENTION_BACKWARD_RATES(X) \
  X(start) X(item) X(unit_macs) X(score) X(step) X(memory) X(mma_unit_macs) X(mma_step) X(loop_macs)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_CUDA_ATTENTION_BACKWARD_RATES)

#define TW_SELECT_CUDA_ATTENTION_BACKWARD_ARCH(X) X(compute_units)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CUDA_ATTENTION_BACKWARD_ARCH)

using Query = AttentionBackwardQuery<Rates, Arch>;

// Tiles that are met of `own` x `met` entries, over all blocks; those that a window cuts are met wholly.
inline double tiles_met(const AttentionBackward &a, double own, double met) {
  const AttentionBackwardProblem &p = a.p;
  const double rows = double(p.varlen ? p.total_q / larger(1, p.batch) : p.seqlen_q);
  const double cut = a.bounded ? rows * (own + met) / 2 * double(p.batch) * double(p.heads_q) : 0.0;
  return (double(a.pairs) + cut) / (own * met);
}
// Blocks that begin together take as long as the longest: of so many on so many multiprocessors.
inline double shared_out(double blocks, double units) {
  const double waves = blocks / units;
  return waves <= 1.0 ? 1.0 / blocks : (waves + 0.3) / waves / units;
}

// The same where the longest of them is known; few blocks that are `even` fill whole waves.
inline double shared_out(double blocks, double longest, double all, double units, bool even) {
  const double waves = blocks / units, few = 4.0;
  const double last = waves <= 1.0 ? 1.0 : even && waves <= few ? ceil(waves) : waves + 0.3;
  return slower(longest, all / blocks * last);
}

}  // namespace cuda_attention_backward
}  // namespace selection
}  // namespace tw
