// An attention kernel: a Config (what and how, filled in by the generated file) and its Work, behind the C ABI.
//
// The Work of a pipeline is in a header of its own, attention_PIPELINE.h, which the generated file includes; it has
//   broken(x)              the first rule it breaks beyond those of all kernels of its family
//   workspace(x, threads)  bytes
//   launch(x, workspace, stream)
// where x are the arguments of the family.  It is asked neither of the last two where there are no rows, and launched
// only where all tables hold what they may.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/export.h>

namespace tw {

template <class Config, class Work> struct Attention : PlainKernel {
  using Args = typename attention_args_of<Config::family>::type;

  static Answer broken(const Args *args) {
    const Answer common = broken_of<Config>(args);
    return common.code ? common : Work::broken(*args);
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const Args *>(args)), why, bytes);
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

#define TW_EXPORT_ATTENTION(Config, Work, Manifest) TW_EXPORT_STRUCT(Manifest, tw::Attention<Config, Work>)
