// What the pipelines of attention share whose blocks have warp-specialized: producer warps and consumer warpgroups.
#pragma once
#include <tilewright/cuda/primitives/shared_tiles.h>
#include <tilewright/cuda/primitives/tma.h>
#include <tilewright/cuda/primitives/wgmma.h>

#ifdef TW_ON_GPU
namespace tw {

// How a block begins: maps are fetched, barriers are made and seen by everybody.
template <class S, class Shared, class... Maps> TW_GPU void enter(const Shared &shared, const Maps &...maps) {
  if (threadIdx.x == 0) {
    (tma_prefetch(&maps), ...);
    shared.init();
  }
  __syncthreads();
  if constexpr (S::Split) let_next_kernel_in();  // which combines splits, as soon as there is room
}

// The consumer warpgroup a thread is in: the first warpgroup produces.
TW_GPU int consumer_warpgroup() { return int(lane_at(threadIdx.x / 128, 0)) - 1; }

// One thread of a warpgroup says that all have read.
TW_GPU void give_back(Barrier &empty) {
  if (threadIdx.x % 128 == 0) empty.arrive();
}

// Results of rows whose exponentials are taken from a larger score from now on.
template <int Count> TW_GPU void scale_rows(float (&o)[Count], const float (&factor)[2]) {
  if (any_lane(factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
    for (int j = 0; j < Count; ++j) o[j] *= factor[j / 2 % 2];
  }
}

}  // namespace tw
#endif
