// What the costs of attention's gradients on AMD GPUs share: rates.
#pragma once
#include <tilewright/hip/attention_backward/limits.h>

namespace tw {
namespace selection {
namespace hip_attention_backward {

// `flops_*`: multiplications and additions a second that a well filled kernel reaches, by element type.
#define TW_SELECT_HIP_ATTENTION_BACKWARD_RATES(X) X(start) X(loops) X(memory) X(flops_fp32) X(flops_fp16) X(flops_bf16)
TW_SELECT_STRUCT(Rates, real, TW_SELECT_HIP_ATTENTION_BACKWARD_RATES)

#define TW_SELECT_HIP_ATTENTION_BACKWARD_ARCH(X) X(compute_units)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_HIP_ATTENTION_BACKWARD_ARCH)

using Query = AttentionBackwardQuery<Rates, Arch>;

inline double flops_of(const Rates &r, int64_t type) {
  return type == kBackwardFp32 ? r.flops_fp32 : type == kBackwardFp16 ? r.flops_fp16 : r.flops_bf16;
}

}  // namespace hip_attention_backward
}  // namespace selection
}  // namespace tw
