// The host's half of the stages before and behind attention's gradients.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gpu/attention_backward_rows.h>

namespace tw::cuda {

template <class Config> struct HostAttentionBackwardDot {
  using Args = tw_attention_backward_dot_args;
  using S = BackwardRows<Config>;
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), 128, 1, false, Config::early}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    BackwardDotArgs d = backward_dot_args<Config>(x);
    if (d.blocks() > 0)
      if (int status = start(place.functions[0], {unsigned(d.blocks())}, shape(), stream, d)) return status;
    if (!Config::dsink) return TW_OK;
    return start(place.functions[1], {unsigned(x.heads_q)}, shape(), stream, d);
  }
};

template <class Config> struct HostAttentionBackwardConvert {
  using Args = tw_attention_backward_convert_args;
  using S = BackwardRows<Config>;
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), 0, 1, false, Config::early}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    BackwardConvertArgs c = backward_convert_args<Config>(x);
    return c.blocks() > 0 ? start(place.functions[0], {unsigned(c.blocks())}, shape(), stream, c) : TW_OK;
  }
};

}  // namespace tw::cuda
