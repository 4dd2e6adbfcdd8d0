// A problem as a tma_ws kernel sees it, and how its work is scheduled over blocks.
#pragma once
#include <tilewright/cuda/schedulers/tile_scheduler.h>
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/gemm/pipelines.h>

namespace tw::cuda {

template <class Config> struct HostWs {
  using S = tma_ws_of<Config>;
  using Scheduling = HostTileScheduler<S, typename Config::Arch>;

  // As the kernel sees them: with swap_ab it is B that lies along its m.
  struct Operand {
    const void *at;
    int64_t lines, stride, batch_stride;
  };
  static Operand first(const tw_gemm_args &x) { return S::SwapAB ? of_b(x) : of_a(x); }
  static Operand second(const tw_gemm_args &x) { return S::SwapAB ? of_a(x) : of_b(x); }

  // All but how operands come and results leave by TMA.
  static void fill(TmaWsArgs &t, const tw_gemm_args &x) {
    const Operand one = first(x), two = second(x);
    t.m = int(one.lines), t.n = int(two.lines), t.k = int(x.k);
    t.order.batch = int(x.batch), t.order.steps = int(ceil_div(x.k, S::BK));
    t.order.tiles_m = int(ceil_div(t.m, S::BM * S::ClusterM)),
    t.order.tiles_n = int(ceil_div(t.n, S::out_columns * S::ClusterN));
    t.order.group = 2048 / (S::BM * S::ClusterM);  // bands of that many rows: about as high as a round is wide
    t.every_a = one.batch_stride ? 1 : 0, t.every_b = two.batch_stride ? 1 : 0;
    t.e = x.e, t.e_stride = x.e_stride, t.e_batch_stride = x.e_batch_stride;
    t.finish = epilogue_args(x);
  }
  // The number of blocks to launch.
  static unsigned schedule(TmaWsArgs &t, const Loaded::Place &place, void *workspace) {
    Scheduling::lend(t, workspace);
    constexpr int64_t limit = Scheduling::most_blocks / S::Cluster;
    const int64_t here = place.clusters < 1 ? 1 : place.clusters > limit ? limit : place.clusters;
    return unsigned(Scheduling::schedule(t.order, here) * S::Cluster);
  }

 private:
  static Operand of_a(const tw_gemm_args &x) { return {x.a, x.m, x.a_stride, x.a_batch_stride}; }
  static Operand of_b(const tw_gemm_args &x) { return {x.b, x.n, x.b_stride, x.b_batch_stride}; }
};

}  // namespace tw::cuda
