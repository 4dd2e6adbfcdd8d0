// A kernel of attention's gradients on AMD GPUs behind the C ABI.  What a family brings (`Host` of its Config's template):
//   workspace(args)              bytes
//   run(args, workspace, stream) a status
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/attention_backward_rules.h>
#include <tilewright/export.h>
#include <tilewright/gpu/types.h>
#include <tilewright/hip/fast_math.h>
#include <tilewright/select/attention_backward_args.h>

namespace tw::hip {

template <class... Args> int backward_launch(void (*kernel)(Args...), int64_t blocks, unsigned threads, void *stream,
                                             std::remove_const_t<Args>... args) {
  if (blocks <= 0) return TW_OK;
  void *words[] = {static_cast<void *>(&args)...};
  const hipError_t error = hipLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(unsigned(blocks)),
                                           dim3(threads), words, 0, static_cast<hipStream_t>(stream));
  return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
}

// Limits: the family's limits.h with the numbers of this kernel (TW_LIMITS of select/check.h).
template <class Config, class Limits, class Host> struct AttentionBackwardKernel : PlainKernel {
  using Args = typename attention_backward_args_of<Config::family>::type;
  static int check(const void *args, char *why, size_t bytes) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_backward<Config>(x);
    return common.code ? say(common, why, bytes) : selection::check_backward_limits<Config, Limits>(*x, why, bytes);
  }
  static int64_t workspace(const void *args, int64_t) { return Host::workspace(*static_cast<const Args *>(args)); }
  static int launch(const void *args, void *workspace, void *stream) {
    return Host::run(*static_cast<const Args *>(args), workspace, stream);
  }
};

}  // namespace tw::hip
