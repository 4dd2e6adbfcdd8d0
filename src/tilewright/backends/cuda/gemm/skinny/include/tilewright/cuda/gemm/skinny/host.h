// The host's half of the skinny pipeline.
#pragma once
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/gemm/pipelines.h>

namespace tw::cuda {

template <class Config> struct HostSkinny : WideCopies<Config> {
  using S = skinny_of<Config>;
  static constexpr int64_t clear_bytes = 0;

  static Answer broken(const tw_gemm_args &) { return {}; }
  static int64_t workspace(const tw_gemm_args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes)}; }

  static int run(const tw_gemm_args &x, const Loaded::Place &place, void *, void *stream) {
    SkinnyArgs t{};
    t.a = x.a, t.b = x.b, t.b_up = x.b_up, t.e = x.e;
    t.m = int(x.m), t.n = int(x.n), t.k = int(x.k), t.batch = int(x.batch);
    t.a_stride = x.a_stride, t.b_stride = x.b_stride, t.e_stride = x.e_stride;
    t.a_batch = x.a_batch_stride, t.b_batch = x.b_batch_stride, t.e_batch = x.e_batch_stride;
    t.finish = epilogue_args(x);
    if (S::Swapped)
      t.a = x.b, t.b = x.a, t.m = int(x.n), t.n = int(x.m), t.a_stride = x.b_stride, t.b_stride = x.a_stride,
      t.a_batch = x.b_batch_stride, t.b_batch = x.a_batch_stride;
    const unsigned tiles = S::Tiled ? unsigned(ceil_div(t.m, S::tokens)) : 1;
    return start(place.functions[0], {unsigned(ceil_div(t.n, S::many)), unsigned(x.batch), tiles}, shape(), stream, t);
  }
};

}  // namespace tw::cuda
