// An attention kernel: a Config (what and how, filled in by the generated file), the device function of its pipeline,
// and the C ABI around it.  The file is compiled in halves, as a GEMM is (cuda/gemm/gemm.h).
//
// A family brings its headers in a folder of its own.  kernel.h has the device's half, and a macro that names its
// functions; limits.h what it refuses.  host.h has the host's half, a struct (the generated file makes it Config::Host)
// with
//   clear_bytes   bytes of the workspace that are zero before and after a launch
//   broken(x)     the first rule that arguments break beyond its limits: where splits lie, which no problem says
//   workspace(x)  bytes; not called where there are no rows
//   shape()       how its function is launched
//   run(x, place, workspace, stream)
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/gpu/activation.h>

#ifdef __CUDA_ARCH__
#define TW_EXPORT_ATTENTION(Config, Limits, Symbol, Manifest, ...)
#else
#include <tilewright/cuda/host/export.h>
#include <tilewright/select/attention_args.h>

namespace tw::cuda {

// Limits: the family's limits.h with the numbers of this kernel (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct Attention : PlainKernel {
  using Host = typename Config::Host;
  using Args = typename attention_args_of<Config::family>::type;
  static constexpr bool packs = false;
  static constexpr int64_t clear_bytes = Host::clear_bytes;

  static int check(const void *args, char *why, size_t bytes) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_of<Config>(x);
    if (common.code) return say(common, why, bytes);
    const int refused = selection::check_limits<Config, Limits>(*x, why, bytes);
    return refused ? refused : say(Host::broken(*x), why, bytes);
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

#define TW_EXPORT_ATTENTION(Config, Limits, Symbol, Manifest, ...) \
  using tw_kernel_##Symbol = tw::cuda::Attention<Config, Limits>; \
  TW_EXPORT_CUDA(tw_kernel_##Symbol, Symbol, Manifest, __VA_ARGS__)
#endif
