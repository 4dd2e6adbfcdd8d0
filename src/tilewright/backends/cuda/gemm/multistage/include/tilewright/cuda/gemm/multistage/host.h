// The host's half of the multistage pipeline.
#pragma once
#include <tilewright/cuda/schedulers/tile_scheduler.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/gpu/multistage_shape.h>

namespace tw::cuda {

template <class Config> struct HostMultistage {
  using S = Multistage<Config>;
  using Scheduling = HostTileScheduler<S, typename Config::Arch>;
  static constexpr int64_t clear_bytes = Scheduling::clear_bytes;

  // A float is copied in one piece, so it must be where floats may be.
  static Answer broken(const tw_gemm_args &x) {
    const auto off = [](const void *at, size_t size) { return size == 4 && reinterpret_cast<uintptr_t>(at) % 4; };
    return off(x.a, sizeof(typename Config::A)) || off(x.b, sizeof(typename Config::B))
               ? Answer{TW_ALIGNMENT, "A or B does not start at a multiple of its element"}
               : Answer{};
  }
  // A and B, to what is copied of each at a time; the result is stored wherever it is.
  static void set_aligned(selection::GemmProblem &p, const tw_gemm_args &x) {
    const auto whole = [&x](const void *at, int64_t batch_stride, size_t size, int64_t vector) {
      const bool parts = vector > int64_t(size);
      return !parts || (reinterpret_cast<uintptr_t>(at) % vector == 0 &&
                        (x.batch <= 1 || batch_stride * int64_t(size) % vector == 0));
    };
    selection::set_aligned(p, whole(x.a, x.a_batch_stride, sizeof(typename Config::A), Config::vector_a),
                           whole(x.b, x.b_batch_stride, sizeof(typename Config::B), Config::vector_b), true);
  }
  static int64_t workspace(const tw_gemm_args &) { return Scheduling::bytes; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes)}; }

  static int run(const tw_gemm_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (Scheduling::shares && !workspace) return TW_BAD_ARGS;
    MultistageArgs t{};
    t.m = int(x.m), t.n = int(x.n), t.k = int(x.k);
    t.order.batch = int(x.batch);
    t.order.steps = x.k ? int(ceil_div(x.k, S::BK)) : 1;  // without k, one k-block of zeros
    t.order.tiles_m = int(ceil_div(x.m, S::BM)), t.order.tiles_n = int(ceil_div(x.n, S::BN));
    t.order.group = 8;
    t.a = x.a, t.b = x.b, t.e = x.e;
    t.a_stride = x.a_stride, t.b_stride = x.b_stride, t.e_stride = x.e_stride;
    t.a_batch = x.a_batch_stride, t.b_batch = x.b_batch_stride, t.e_batch = x.e_batch_stride;
    Scheduling::lend(t, workspace);
    t.finish = epilogue_args(x);
    constexpr int limit = Scheduling::most_blocks / S::ctas_per_sm;
    const int64_t tiles = int64_t(t.order.tiles_m) * t.order.tiles_n * x.batch;
    const int64_t parts = Scheduling::schedule(t.order, place.multiprocessors > limit ? limit : place.multiprocessors,
                                               place.ctas_per_sm < S::ctas_per_sm ? place.ctas_per_sm : S::ctas_per_sm);
    return start(place.functions[0],
                 {unsigned(t.order.parts > 1 || S::Scheduler == TileScheduler::stream_k ? parts : tiles)}, shape(),
                 stream, t);
  }
};

}  // namespace tw::cuda
