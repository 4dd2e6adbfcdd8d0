// A kernel of attention's gradients: a Config (what and how, filled in by the generated file), the device functions of its
// pipeline, and the C ABI around them.  The file is compiled in halves, as a GEMM is (cuda/gemm/gemm.h); what a family
// brings is as with attention (cuda/attention/attention.h), without a `broken`.
#pragma once
#include <tilewright/attention_backward_rules.h>
#include <tilewright/gpu/types.h>

#ifdef __CUDA_ARCH__
#define TW_EXPORT_ATTENTION_BACKWARD(Config, Limits, Symbol, Manifest, ...)
#else
#include <tilewright/cuda/host/export.h>
#include <tilewright/select/attention_backward_args.h>

namespace tw::cuda {

// Limits: the family's limits.h with the numbers of this kernel (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct AttentionBackward : PlainKernel {
  using Host = typename Config::Host;
  using Args = typename attention_backward_args_of<Config::family>::type;
  static constexpr bool packs = false;

  static int check(const void *args, char *why, size_t bytes) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_backward<Config>(x);
    if (common.code) return say(common, why, bytes);
    return selection::check_backward_limits<Config, Limits>(*x, why, bytes);
  }
  static int64_t workspace(const void *args, int64_t) { return Host::workspace(*static_cast<const Args *>(args)); }
  static int run(Loaded &loaded, const void *args, void *workspace, void *stream) {
    Loaded::Place place;
    if (int error = loaded.get(place, Host::shape())) return status_of(error);
    return Host::run(*static_cast<const Args *>(args), place, workspace, stream);
  }
};

}  // namespace tw::cuda

#define TW_EXPORT_ATTENTION_BACKWARD(Config, Limits, Symbol, Manifest, ...) \
  using tw_kernel_##Symbol = tw::cuda::AttentionBackward<Config, Limits>; \
  TW_EXPORT_CUDA(tw_kernel_##Symbol, Symbol, Manifest, __VA_ARGS__)
#endif
