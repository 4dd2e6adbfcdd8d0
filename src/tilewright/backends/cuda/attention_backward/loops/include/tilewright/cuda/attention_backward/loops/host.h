// The host's half of the loops of attention's gradients: a launch for each result.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gpu/attention_backward_loops.h>

namespace tw::cuda {

template <class Config> struct HostAttentionBackwardLoops {
  using Args = tw_attention_backward_args;
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(BackwardLoops::threads), 128}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    BackwardLoopsArgs t = backward_loops_args<Config>(x);
    if (int status = teams(place.functions[0], t.keys, stream, t)) return status;
    if (int status = teams(place.functions[1], t.rows, stream, t)) return status;
    if (Config::dbias)
      if (int status = teams(place.functions[2], t.entries(), stream, t)) return status;
    const int64_t slopes = t.slopes[0] * t.slopes[1];
    return Config::dalibi && slopes ? start(place.functions[3], {unsigned(slopes)}, shape(), stream, t) : TW_OK;
  }

 private:
  static int teams(Function function, int64_t count, void *stream, BackwardLoopsArgs &t) {
    return count ? start(function, {t.blocks(count)}, shape(), stream, t) : TW_OK;
  }
};

}  // namespace tw::cuda
