// What the kernels of GEMM on AMD GPUs share: rates.
#pragma once
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace hip_gemm {

// `macs_N`: multiply-adds a clock of a compute unit at N bytes an element; `share_*` and `ramp_*`: what a pipeline
// reaches of them once it runs, and iterations of its k loop before it does.
// clang-format off
#define TW_SELECT_HIP_GEMM_RATES(X) \
  X(clock) X(macs_4) X(macs_2) X(macs_1) X(loops_macs) X(memory) X(start) X(share_compv3) X(share_compv4) \
  X(share_compv5) X(share_mem) X(share_preshuffle) X(share_tiled) X(ramp_compv3) X(ramp_compv4) X(ramp_compv5) \
  X(ramp_mem) X(ramp_preshuffle) X(ramp_tiled)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_HIP_GEMM_RATES)

#define TW_SELECT_HIP_ARCH(X) X(compute_units)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_HIP_ARCH)

using Query = GemmQuery<Rates, Arch>;

// Of the matrix units' peak: what a pipeline reaches, times what the tile's shape allows, or what a model of the kernel's
// code says of its main loop (`issue`) where that is less.  So a kernel without a model loses nothing to one that has it.
inline double reached(double share, int64_t issue, double by_shape) {
  return share * (issue ? faster(double(issue) / 1000, by_shape) : by_shape);
}

}  // namespace hip_gemm
}  // namespace selection
}  // namespace tw
