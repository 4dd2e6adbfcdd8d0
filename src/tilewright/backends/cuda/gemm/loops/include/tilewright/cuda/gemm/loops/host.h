// The host's half of the loops: it takes whatever is sound.
#pragma once
#include <tilewright/cuda/gemm/host_common.h>

namespace tw::cuda {

template <class Config> struct HostLoops : WideCopies<Config> {
  static constexpr int64_t clear_bytes = 0;
  static Answer broken(const tw_gemm_args &) { return {}; }
  static int64_t workspace(const tw_gemm_args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(Loops::threads)}; }

  static int run(const tw_gemm_args &x, const Loaded::Place &place, void *, void *stream) {
    LoopsArgs t = loops_args(x);
    const int64_t tiles = t.tiles_m * t.tiles_n * x.batch, most = 1 << 30;
    return start(place.functions[0], {unsigned(tiles < most ? tiles : most)}, shape(), stream, t);
  }
};

}  // namespace tw::cuda
