// A convolution kernel: a Config (what and how, filled in by the generated file) and its Work, behind the C ABI.
//
// The Work of a pipeline is in a header of its own, conv_PIPELINE.h, which the generated file includes; it has
//   broken(x)              the first rule it breaks beyond those of all convolutions
//   workspace(x, threads)  bytes
//   launch(x, workspace, stream)
// and is asked neither of the last two of a problem that writes nothing.  All but the floor are wrapped in ConvTurned: they
// find channels side by side, wherever these lie.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/export.h>

#include <tilewright/cpu/conv_turned.h>

namespace tw {

template <class Config, class Work> struct Conv : PlainKernel {
  static Answer broken(const tw_conv_args *args) {
    const Answer common = broken_conv<Config>(args);
    return common.code ? common : Work::broken(*args);
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_conv_args *>(args)), why, bytes);
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

#define TW_EXPORT_CONV(Config, Work, Manifest) TW_EXPORT_STRUCT(Manifest, tw::Conv<Config, Work>)
