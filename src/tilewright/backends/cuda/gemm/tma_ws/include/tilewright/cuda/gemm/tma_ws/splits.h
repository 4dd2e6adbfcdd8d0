// Who is who in a tma_ws kernel: the block in its cluster, a consumer warpgroup in its block, and the shared memory
// they have in common.
#pragma once
#include <tilewright/cuda/primitives/barrier.h>
#include <tilewright/cuda/primitives/shared_tiles.h>
#include <tilewright/cuda/gemm/tma_ws/shape.h>

namespace tw {

// The block's place in its cluster: blocks of one row share A, blocks of one column share B.
template <class S> struct Place {
  int m, n;
  TW_GPU Place() {
    uint32_t rank = S::Group > 1 ? cluster_rank() : 0;
    m = rank % S::ClusterM;
    n = rank / S::ClusterM;
  }
  TW_GPU uint16_t row() const {
    uint16_t mask = 0;
#pragma unroll
    for (int i = 0; i < S::ClusterN; ++i) mask |= uint16_t(1u << (m + i * S::ClusterM));
    return mask;
  }
  TW_GPU uint16_t column() const { return uint16_t(((1u << S::ClusterM) - 1) << (n * S::ClusterM)); }
};

// One of the warpgroups that multiply, and a thread of it.
struct Warpgroup {
  int who, thread, lane, warp;
  TW_GPU Warpgroup()
      : who(threadIdx.x / 128 - 1), thread(threadIdx.x % 128), lane(threadIdx.x % 32), warp(thread / 32) {}
  // Waits for its 128 threads.
  TW_GPU void sync() const { named_barrier(2 + who, 128); }
};

// Stages, from multiples of 1024 bytes on; buffers of the warpgroups for what leaves; two barriers a stage, and those of
// boxes that come into the buffers.
template <class S> struct SharedMemory {
  char *stages, *out;
  Barrier *full, *empty, *boxes;
  TW_GPU SharedMemory() {
    stages = shared_tiles();
    out = stages + S::Stages * S::stage_bytes;
    full = reinterpret_cast<Barrier *>(out + S::Groups * S::buffers * S::chunk);
    empty = full + S::Stages;
    boxes = empty + S::Stages;
  }
};

// The accumulators of a consumer warpgroup, as wgmma keeps them: each 64 rows of its part of a tile.
template <class S> using SumOf = typename sum_of<typename S::In>::type;
template <class S> using Accumulators = SumOf<S>[S::blocks_m][S::BN / 2];

}  // namespace tw
