// The host's half of the loops: it takes whatever is sound.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gpu/conv_loops.h>

namespace tw::cuda {

template <class Config> struct HostConvLoops {
  static constexpr int64_t clear_bytes = 0;
  static Answer broken(const tw_conv_args &) { return {}; }
  static int64_t workspace(const tw_conv_args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(ConvLoopsShape::threads)}; }

  static int run(const tw_conv_args &x, const Loaded::Place &place, void *, void *stream) {
    tw_conv_args passed = x;
    long long elements = ConvLoopsShape::elements<Config>(x);
    return start(place.functions[0], {ConvLoopsShape::blocks<Config>(x)}, shape(), stream, passed, elements);
  }
};

}  // namespace tw::cuda
