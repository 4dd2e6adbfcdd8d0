// An attention kernel: a Config (what and how, filled in by the generated file) bound to the Work of its family and
// exported through the C ABI.
//
// The Work is in kernel.h of the family's folder, which the generated file includes; it has
//   workspace(x, threads)  bytes
//   launch(x, workspace, stream)
// where x are the arguments of the signature's family.  Neither is called where there are no rows, nor `launch` unless
// all tables hold what they may.
#pragma once
#include <tilewright/export.h>
#include <tilewright/select/attention_args.h>

namespace tw {

// Limits: the family's limits.h with the numbers of this kernel (TW_LIMITS of select/check.h).
template <class Config, class Work, class Limits> struct Attention : PlainKernel {
  using Args = typename attention_args_of<Config::family>::type;

  static int check(const void *args, char *why, size_t bytes) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_of<Config>(x);
    return common.code ? say(common, why, bytes) : selection::check_limits<Config, Limits>(*x, why, bytes);
  }
  static int64_t workspace(const void *args, int64_t threads) {
    auto &x = *static_cast<const Args *>(args);
    return no_rows(x) ? 0 : Work::workspace(x, threads < 1 ? 1 : threads);
  }
  static int launch(const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const Args *>(args);
    if (no_rows(x)) return TW_OK;
    const int wrong = wrong_of<Config>(x);
    return wrong ? wrong : Work::launch(x, workspace, stream);
  }
};

}  // namespace tw
