// A convolution kernel: a Config (what and how, filled in by the generated file), the device function of its pipeline,
// and the C ABI around it.  The file is compiled in halves, as a GEMM is (cuda/gemm/gemm.h).
//
// A pipeline brings two headers.  conv_PIPELINE.h has the device's half, and a macro that names its functions.
// conv_host_PIPELINE.h has the host's half, a struct (the generated file makes it Config::Host) with
//   clear_bytes   bytes of the workspace that are zero before and after a launch
//   broken(x)     the first rule it breaks beyond those of all convolutions and the family's limits.h
//   workspace(x)  bytes; not called where nothing is written
//   shape()       how its function is launched
//   run(x, place, workspace, stream)
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/activation.h>

#ifdef __CUDA_ARCH__
#define TW_EXPORT_CONV(Config, Limits, Symbol, Manifest, ...)
#else
#include <tilewright/cuda/host/export.h>
#include <tilewright/select/conv_args.h>

namespace tw::cuda {

// Limits: the namespace of the family's limits.h, as a type (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct Conv : PlainKernel {
  using Host = typename Config::Host;
  static constexpr bool packs = false;
  static constexpr int64_t clear_bytes = Host::clear_bytes;

  static bool aligned(const tw_conv_args &x) {
    return (reinterpret_cast<uintptr_t>(x.x) | reinterpret_cast<uintptr_t>(x.w) | reinterpret_cast<uintptr_t>(x.y)) %
               16 ==
           0;
  }
  // D tensors that are more than one number a channel.
  static int64_t full_d(const tw_conv_args &x) {
    int64_t count = 0;
    for (int i = 0; i < Config::num_d; ++i)
      count += x.d_strides[i][0] || x.d_strides[i][1] || x.d_strides[i][2] || x.d_strides[i][3];
    return count;
  }
  // The limits of selection, and what it does not know of D tensors and strides.
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_conv_args *>(args);
    const Answer common = broken_conv<Config>(x);
    if (common.code) return say(common, why, bytes);
    selection::ConvProblem p = selection::conv_of<Config>(*x, aligned(*x));
    p.full_d = full_d(*x);
    if (const int code = selection::check<Limits>(selection::Conv(p), why, bytes)) return code;
    return say(Host::broken(*x), why, bytes);
  }
  static int64_t workspace(const void *args, int64_t) {
    auto &x = *static_cast<const tw_conv_args *>(args);
    return nothing_written<Config>(x) ? 0 : Host::workspace(x);
  }
  static int run(Loaded &loaded, const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_conv_args *>(args);
    if (nothing_written<Config>(x)) return TW_OK;
    Loaded::Place place;
    if (int error = loaded.get(place, Host::shape())) return status_of(error);
    return Host::run(x, place, workspace, stream);
  }
};

}  // namespace tw::cuda

#define TW_EXPORT_CONV(Config, Limits, Symbol, Manifest, ...) \
  using TwConv_##Symbol = tw::cuda::Conv<Config, Limits>; \
  TW_EXPORT_CUDA(TwConv_##Symbol, Symbol, Manifest, __VA_ARGS__)
#endif
