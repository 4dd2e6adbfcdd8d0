// An attention kernel: a Config (what and how, filled in by the generated file), the device function of its pipeline,
// and the C ABI around it.  The file is compiled in halves, as a GEMM is (cuda/gemm/gemm.h).
//
// A pipeline brings two headers.  attention_PIPELINE.h has the device's half, and a macro that names its functions.
// attention_host_PIPELINE.h has the host's half, a struct (the generated file makes it Config::Host) with
//   clear_bytes   bytes of the workspace that are zero before and after a launch
//   broken(x)     the first rule it breaks beyond those of all kernels of its family
//   workspace(x)  bytes; not asked where there are no rows
//   shape()       how its function is launched
//   run(x, place, workspace, stream)
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/gpu/activation.h>

#ifdef __CUDA_ARCH__
#define TW_EXPORT_ATTENTION(Config, Symbol, Manifest, ...)
#else
#include <tilewright/cuda/host/export.h>

namespace tw::cuda {

template <class Config> struct Attention : PlainKernel {
  using Host = typename Config::Host;
  using Args = typename attention_args_of<Config::family>::type;
  static constexpr bool packs = false;
  static constexpr int64_t clear_bytes = Host::clear_bytes;

  // The first rule that is broken.  The op's `supports` says the same in Python.
  static Answer broken(const Args *args) {
    const Answer common = broken_of<Config>(args);
    return common.code ? common : Host::broken(*args);
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const Args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *args, int64_t) {
    auto &x = *static_cast<const Args *>(args);
    return no_rows(x) ? 0 : Host::workspace(x);
  }
  static int run(Loaded &loaded, const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const Args *>(args);
    if (no_rows(x)) return TW_OK;
    Loaded::Place place;
    if (int error = loaded.get(place, Host::shape())) return status_of(error);
    return Host::run(x, place, workspace, stream);
  }
};

}  // namespace tw::cuda

#define TW_EXPORT_ATTENTION(Config, Symbol, Manifest, ...) \
  TW_EXPORT_CUDA(tw::cuda::Attention<Config>, Symbol, Manifest, __VA_ARGS__)
#endif
