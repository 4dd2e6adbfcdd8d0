// The host's half of the loops: it takes whatever is sound.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gpu/attention_loops.h>

namespace tw::cuda {

template <class Config> struct HostAttentionLoops {
  using Args = typename attention_args_of<Config::family>::type;
  static constexpr int64_t clear_bytes = 0;
  static Answer broken(const Args &) { return {}; }
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(AttentionLoopsShape::threads),
                       unsigned(AttentionLoopsShape::shared_floats<Config> * 4)};
  }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    Args passed = x;
    long long units = AttentionLoopsShape::units<Config>(x);
    return start(place.functions[0], {AttentionLoopsShape::blocks<Config>(x)}, shape(), stream, passed, units);
  }
};

}  // namespace tw::cuda
