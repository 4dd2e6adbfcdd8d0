// The numbers of the tma_ws pipeline, for the host that launches and the device that runs.
#pragma once
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct alignas(64) TensorMap { uint64_t words[16]; };  // opaque: the driver's CUtensorMap

struct TmaWsArgs {
  int m, n, k, batch;        // as the kernel sees them (already swapped)
  int tiles_m, tiles_n;      // of a cluster's tiles
  int group;                 // rows of tiles finished before the next columns
  int share;                 // stream-K: k steps of one cluster
  int every_a, every_b;      // 0: one matrix serves the whole batch
  void *e;                   // for results that leave by ordinary stores
  long long e_stride, e_batch_stride;
  float *partial;            // stream-K: one tile of sums for each block, and two flags each
  unsigned *flags;           // zero before a launch and after it
  EpilogueArgs finish;
};

template <class In_, int BM_, int BN_, int Stages_, int ClusterM_, int ClusterN_, bool PingPong_, bool Swapped_ = false, bool TmaStore_ = true,
          int MajorA_ = 0, int MajorB_ = 0, bool StreamK_ = false>
struct TmaWs {
  using In = In_;
  static constexpr int BM = BM_, BN = BN_, Stages = Stages_, ClusterM = ClusterM_, ClusterN = ClusterN_, MajorA = MajorA_, MajorB = MajorB_;
  static constexpr int Cluster = ClusterM * ClusterN;
  static constexpr bool PingPong = PingPong_, Swapped = Swapped_, TmaStore = TmaStore_, StreamK = StreamK_;
  static constexpr int BK = 128 / sizeof(In);          // one swizzled row
  static constexpr int threads = 384;
  static constexpr int rows = PingPong ? BM : BM / 2;  // of the tile, for one multiplying warpgroup
  static constexpr int blocks_m = rows / 64;
  static constexpr int a_bytes = BM * 128, b_bytes = BN * 128, stage_bytes = a_bytes + (b_bytes + 1023) / 1024 * 1024;
  // Results leave 64 rows at a time, as wide as divides the tile: 128, 64, 32 or 16 bytes, swizzled.
  // Each multiplying warpgroup has two such buffers, or one sheet of floats in the same place.
  static constexpr int chunk_columns = BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : BN % 16 == 0 ? 16 : 8;
  static constexpr int chunk = 64 * chunk_columns * 2, chunks = 4;
  static constexpr int shared_bytes = Stages * stage_bytes + chunks * chunk + 1024 + 256;
  static_assert(rows % 64 == 0 && BN % 8 == 0 && BN <= 256, "tile");
  static_assert(!TmaStore || BN % 16 == 0, "results leave 16 columns at a time");
};

}  // namespace tw
