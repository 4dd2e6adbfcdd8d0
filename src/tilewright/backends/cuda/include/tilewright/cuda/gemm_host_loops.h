// The host's half of the loops: it takes whatever is sound.
#pragma once
#include <tilewright/cuda/gemm_host_common.h>
#include <tilewright/gpu/gemm_loops.h>

namespace tw::cuda {

template <class Config> struct HostLoops {
  static constexpr int64_t clear_bytes = 0;
  static Answer broken(const tw_gemm_args &) { return {}; }
  static int64_t workspace(const tw_gemm_args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(Loops::threads)}; }

  static int run(const tw_gemm_args &x, const Loaded::Place &place, void *, void *stream) {
    LoopsArgs t{};
    t.m = x.m, t.n = x.n, t.k = x.k, t.batch = x.batch;
    t.tiles_m = ceil_div(x.m, Loops::tile), t.tiles_n = ceil_div(x.n, Loops::tile);
    t.a = x.a, t.b = x.b, t.e = x.e;
    t.a_stride = x.a_stride, t.b_stride = x.b_stride, t.e_stride = x.e_stride;
    t.a_batch = x.a_batch_stride, t.b_batch = x.b_batch_stride, t.e_batch = x.e_batch_stride;
    t.finish = epilogue_args(x);
    const int64_t tiles = t.tiles_m * t.tiles_n * x.batch, most = 1 << 30;
    return start(place.functions[0], {unsigned(tiles < most ? tiles : most)}, shape(), stream, t);
  }
};

}  // namespace tw::cuda
