// A convolution kernel: a Config (what and how, filled in by the generated file) and the Work of its family, behind the
// C ABI.
//
// A Work has
//   workspace(x, threads)  bytes
//   launch(x, workspace, stream)
// and neither is called for a problem that writes nothing.  All but plain loops are wrapped in ConvChannelsLast: they find
// channels side by side, wherever these lie.
#pragma once
#include <tilewright/export.h>
#include <tilewright/select/conv_args.h>

#include <tilewright/cpu/conv/channels_last.h>

namespace tw {

// Limits: the family's limits.h as a type (TW_LIMITS of select/check.h); void where the Work says `broken(x)` itself.
template <class Config, class Work, class Limits> struct Conv : PlainKernel {
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_conv_args *>(args);
    if constexpr (same<Limits, void>::value) {
      const Answer common = broken_conv<Config>(x);
      return say(common.code ? common : Work::broken(*x), why, bytes);
    } else {
      return selection::check_conv<Config, Limits>(x, true, why, bytes);
    }
  }
  static int64_t workspace(const void *args, int64_t threads) {
    auto &x = *static_cast<const tw_conv_args *>(args);
    return nothing_written<Config>(x) ? 0 : Work::workspace(x, threads < 1 ? 1 : threads);
  }
  static int launch(const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_conv_args *>(args);
    return nothing_written<Config>(x) ? int(TW_OK) : Work::launch(x, workspace, stream);
  }
};

}  // namespace tw

// Of a kernel whose Work says itself what it refuses.
#define TW_EXPORT_CONV(Config, Work, Manifest) TW_EXPORT_STRUCT(Manifest, tw::Conv<Config, Work, void>)
