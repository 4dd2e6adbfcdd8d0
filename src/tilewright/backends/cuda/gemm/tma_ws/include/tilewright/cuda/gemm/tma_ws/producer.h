// What the producer thread of a tma_ws kernel does: it has TMA fill stage after stage, as they come free.
#pragma once
#include <tilewright/cuda/primitives/tma.h>
#include <tilewright/cuda/gemm/tma_ws/memory.h>
#include <tilewright/cuda/gemm/tma_ws/splits.h>

namespace tw {

template <int Whole, int Parts> struct PartOf {
  static constexpr int lines = tma_ws_part(Whole, Parts);
};

// `Whole` rows or columns of an operand, of which this block fetches one of `Parts` for all in `mask`: some of them, or
// where these are contiguous, all of them for some k.  Where parts are no whole atoms, the blocks fetch all in turns of
// so many k.
template <int Whole, int Parts, int Major, int Turn = 64> TW_GPU void fetch(const TensorMap &map, Barrier *done,
                                                                            char *to, int k, int at, int z, int part,
                                                                            uint16_t mask, uint64_t policy = cached) {
  if constexpr (Major == 0) {
    constexpr int here = PartOf<Whole, Parts>::lines;
    char *place = to + part * here * 128;
    if constexpr (Parts == 1) tma_load(&map, done, place, k, at, z, policy);
    else if constexpr (here < Whole) tma_load_multicast(&map, done, place, k, at + part * here, z, mask, policy);
    else if (k / Turn % Parts == part) tma_load_multicast(&map, done, to, k, at, z, mask, policy);
  } else {
    constexpr int here = 64 / Parts;
    static_assert(here % 8 == 0, "parts along k are whole atoms");
#pragma unroll(Parts == 1 ? 4 : 1)  // the producer thread has few registers
    for (int i = 0; i < (Whole + 63) / 64; ++i) {
      char *place = to + i * 8192 + part * here * 128;
      if constexpr (Parts == 1) tma_load(&map, done, place, at + i * 64, k, z, policy);
      else tma_load_multicast(&map, done, place, at + i * 64, k + part * here, z, mask, policy);
    }
  }
}

// The same of an operand packed beforehand: `lines` of a block of k, as the stage wants them.  Where there
// are fewer than a tile has, the stage keeps what it held: that only meets results nobody stores.
template <int Whole, int Parts>
TW_GPU void fetch_packed(const char *from, Barrier *done, char *to, int lines, int part, uint16_t mask) {
  constexpr int here = Whole / Parts;
  static_assert(here % 8 == 0, "parts of a packed operand are whole atoms");
  const int mine = min(lines - part * here, here);
  if (mine <= 0) return;
  if constexpr (Parts == 1) bulk_load(from, done, to, mine * 128);
  else bulk_load_multicast(from + part * here * 128, done, to + part * here * 128, mine * 128, mask);
}

// The tile of a segment, as the producer thread sees it.
template <class S> struct FedTile {
  int row, column, z_a, z_b;
  int bytes = S::a_bytes + S::b_bytes;  // of a stage
  int lines = 0;                        // of the packed operand
  const char *packed = nullptr;

  TW_GPU FedTile(const TmaWsArgs &x, const Segment &s, const Place<S> &place)
      : row((s.m * S::ClusterM + place.m) * S::BM),
        column((s.n * S::ClusterN + place.n) * S::out_columns),
        z_a(s.z * x.every_a),
        z_b(s.z * x.every_b) {
    if constexpr (S::PackedA || S::PackedB) {
      const int first = S::PackedA ? row : column, whole = S::PackedA ? S::BM : S::BN;
      lines = max(0, min(x.packed_lines - first, whole));
      bytes -= (whole - lines) * 128;
      packed = x.packed + (S::PackedA ? z_a : z_b) * x.packed_batch + first * 128ll;
    }
  }
};

// map_d: of a dual kernel, the second B's.
template <class S> TW_GPU void produce(const TensorMap &map_a, const TensorMap &map_b, const TensorMap &map_d,
                                       const TmaWsArgs &x, const SharedMemory<S> &shared) {
  Place<S> place;
  Ring<S::Stages> ring;
  Work<S::Scheduler> work(x.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster, blockIdx.x % S::Cluster);
  Segment s;
  wait_for_kernel_before();  // that copies operands
  while (work.next(s)) {
    const FedTile<S> t(x, s, place);
#pragma unroll 1  // a short problem waits for each instruction to come from memory
    for (int step = s.k0; step < s.k1; ++step, ring.next()) {
      const int k = step * S::BK;
      shared.empty[ring.stage].wait(ring.phase ^ 1);
      char *a = shared.stages + ring.stage * S::stage_bytes;
      Barrier *done = &shared.full[ring.stage];
      done->expect(t.bytes);
      if constexpr (S::PackedA)
        fetch_packed<S::BM, S::ClusterN>(t.packed + step * x.packed_block, done, a, t.lines, place.n, place.row());
      else
        fetch<S::BM, S::ClusterN, S::MajorA, S::BK>(map_a, done, a, k, t.row, t.z_a, place.n, place.row(), x.a_policy);
      char *b = a + S::a_bytes;
      if constexpr (S::PackedB)
        fetch_packed<S::BN, S::ClusterM>(t.packed + step * x.packed_block, done, b, t.lines, place.m, place.column());
      else
        fetch<S::out_columns, S::ClusterM, S::MajorB, S::BK>(map_b, done, b, k, t.column, t.z_b, place.m,
                                                             place.column(), x.b_policy);
      if constexpr (S::Dual)
        fetch<S::out_columns, S::ClusterM, 0, S::BK>(map_d, done, b + S::out_columns * 128, k, t.column, t.z_b, place.m,
                                                     place.column(), x.b_policy);
    }
  }
  if constexpr (S::Group > 1)  // nobody leaves while a neighbour may still write here or arrive here
    for (int i = 0; i < S::Stages; ++i, ring.next()) shared.empty[ring.stage].wait(ring.phase ^ 1);
}

}  // namespace tw
