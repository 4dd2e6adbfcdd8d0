// The shift_ws pipeline: tma_ws for operands whose rows begin anywhere, which the copy engine cannot read.  The warps of
// two warpgroups copy them and shift them into place; all behind that is tma_ws.
#pragma once
#include <tilewright/cuda/gemm_tma_ws.h>
#include <tilewright/cuda/shift_ws_feed.h>

namespace tw {

template <class S, class Config> TW_GPU void gemm_shift_ws(const ShiftWsArgs &x) {
  static_assert(!S::TmaStore && S::Group == 1 && !S::moves_registers, "who feeds does it for its own block");
  const SharedMemory<S> shared;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::Stages; ++i) {
      shared.full[i].init(Feeder::warps);
      shared.empty[i].init(S::PingPong ? 1 : 2);
    }
    fence_barriers();
  }
  if (S::Cluster > 1) cluster_sync();
  else __syncthreads();
  if (threadIdx.x < 128 || threadIdx.x >= 384) {
    FeedByWarps<S, Config::turned ? Config::b_rows : !Config::a_rows,
                Config::turned ? !Config::a_rows : Config::b_rows>(x, shared)
        .run();
    if (S::ClusterK > 1) cluster_sync();  // with those that wait for the sums of the cluster
  } else {
    const TensorMap none = {};
    multiply_and_leave<S, Config>(none, none, x, shared);
  }
  if (S::Cluster > 1) cluster_sync();
}

}  // namespace tw
