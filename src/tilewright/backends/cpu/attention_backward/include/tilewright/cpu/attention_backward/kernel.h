// A kernel of attention's gradients: a Config (what and how, filled in by the generated file) bound to the Work of its
// family and exported through the C ABI.
//
// The Work is in kernel.h of the family's folder, which the generated file includes; it has
//   workspace(x, threads)  bytes
//   launch(x, workspace, stream)
// where x are the arguments of the signature's family.  It is launched only where all tables hold what they may.
#pragma once
#include <tilewright/export.h>
#include <tilewright/select/attention_backward_args.h>

namespace tw {

// Limits: the family's limits.h with the numbers of this kernel (TW_LIMITS of select/check.h).
template <class Config, class Work, class Limits> struct AttentionBackward : PlainKernel {
  using Args = typename attention_backward_args_of<Config::family>::type;

  static int check(const void *args, char *why, size_t bytes) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_backward<Config>(x);
    return common.code ? say(common, why, bytes) : selection::check_backward_limits<Config, Limits>(*x, why, bytes);
  }
  static int64_t workspace(const void *args, int64_t threads) {
    return Work::workspace(*static_cast<const Args *>(args), threads < 1 ? 1 : threads);
  }
  static int launch(const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const Args *>(args);
    const int wrong = wrong_of_backward(x);
    return wrong ? wrong : Work::launch(x, workspace, stream);
  }
};

}  // namespace tw
