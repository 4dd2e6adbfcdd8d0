// What the kernels of attention on AMD GPUs share: rates.
#pragma once
#include <tilewright/select/attention.h>

namespace tw {
namespace selection {
namespace hip_attention {

// `flops_*`: multiplications and additions a second that a well filled kernel reaches, by element type of the queries.
// clang-format off
#define TW_SELECT_HIP_ATTENTION_RATES(X) \
  X(start) X(loops) X(memory) X(flops_fp32) X(flops_fp16) X(flops_bf16) X(flops_fp8_e4m3) X(flops_fp8_e4m3fnuz)
// clang-format on
TW_SELECT_STRUCT(Rates, real, TW_SELECT_HIP_ATTENTION_RATES)

#define TW_SELECT_HIP_ATTENTION_ARCH(X) X(compute_units)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_HIP_ATTENTION_ARCH)

using Query = AttentionQuery<Rates, Arch>;

inline double flops_of(const Rates &r, int64_t type) {
  switch (type) {
    case kFp32:
      return r.flops_fp32;
    case kFp16:
      return r.flops_fp16;
    case kBf16:
      return r.flops_bf16;
    case kE4m3:
      return r.flops_fp8_e4m3;
    default:
      return r.flops_fp8_e4m3fnuz;
  }
}

}  // namespace hip_attention
}  // namespace selection
}  // namespace tw
