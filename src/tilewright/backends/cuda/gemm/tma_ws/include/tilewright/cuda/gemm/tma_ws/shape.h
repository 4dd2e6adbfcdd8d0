// The numbers of the tma_ws pipeline, for the host that launches and the device that runs.
#pragma once
#include <tilewright/cuda/gemm/tma_ws/memory.h>
#include <tilewright/gpu/epilogue.h>
#include <tilewright/gpu/tile_order.h>

namespace tw {

// How C or a D tensor is loaded where results are stored by TMA: as boxes TMA fetches, carried by
// the threads that need it, or as a row or column of which each thread keeps a few elements.
enum class LoadMode : int { box, carried, row, column };

struct AuxOperand {
  const void *at;
  long long stride, batch_stride;
  float scale;  // added so many times; a D that is multiplied: 0
  LoadMode load_mode;
};

struct TmaWsArgs {
  int m, n, k;  // as the kernel sees them (operands already swapped)
  TileOrder order;
  int every_a, every_b;  // 0: one matrix serves the whole batch
  void *e;               // for results that leave by ordinary stores
  long long e_stride, e_batch_stride;
  float *partial;      // stream-K and split-K: a tile of accumulators for each block
  unsigned *flags;     // and words to synchronize by, zero before a launch and after it
  const char *packed;  // the operand packed beforehand (pack.h), in bytes from block of k to block of k
  long long packed_block, packed_batch;
  int packed_lines;
  EpilogueArgs finish;
  AuxOperand aux_operands[3];   // C, then the Ds
  int first_aux;                // 1: without C
  int boxes, every_box;         // whether one of them comes as boxes; 0: one matrix for the whole batch
  uint64_t a_policy, b_policy;  // of the second-level cache, for what comes
};

// `Shared`: bytes of shared memory that a block of the arch can have.
// `SwapAB`: the problem is transposed, E^T = B^T A^T, so that a handful of rows of A lie along n.
// `Dual`: there are two B; the columns of a tile are half of one and half the same of the other, so that a thread has
// both accumulators of each of its results.
template <class In_, int BM_, int BN_, int Stages_, int ClusterM_, int ClusterN_, bool PingPong_, bool SwapAB_,
          bool TmaStore_, int MajorA_, int MajorB_, TileScheduler Scheduler_, int Shared, bool Packed_ = false,
          bool Dual_ = false>
struct TmaWs {
  using In = In_;
  static constexpr int BM = BM_, BN = BN_, Stages = Stages_, MajorA = MajorA_, MajorB = MajorB_;
  // The blocks of a cluster fetch for each other, or share the k of one tile.
  static constexpr int Cluster = ClusterM_ * ClusterN_, ClusterK = Scheduler_ == TileScheduler::cluster_k ? Cluster : 1;
  static constexpr int ClusterM = ClusterK > 1 ? 1 : ClusterM_, ClusterN = ClusterK > 1 ? 1 : ClusterN_;
  static constexpr int Group = ClusterM * ClusterN;  // that fetch for each other
  static constexpr bool PingPong = PingPong_, SwapAB = SwapAB_, TmaStore = TmaStore_, Dual = Dual_;
  static constexpr int out_columns = Dual ? BN / 2 : BN;  // results of a row of a tile
  static constexpr TileScheduler Scheduler = Scheduler_;
  // The problem's B was packed beforehand: it lies along this kernel's n, or its m with swap_ab.
  static constexpr bool PackedA = Packed_ && SwapAB_, PackedB = Packed_ && !SwapAB_;
  static constexpr int BK = tma_ws_k_bytes / sizeof(In);  // one swizzled row
  // A producer warpgroup; two consumers, or of a tile of 192 rows that they share, three.
  static constexpr int Groups = !PingPong && BM == 192 ? 3 : 2, sharing = PingPong ? 1 : Groups;
  static constexpr int threads = 128 * (1 + Groups), ctas_per_sm = 1;
  static constexpr int rows = BM / sharing;  // of the tile, for one consumer warpgroup
  static constexpr int blocks_m = rows / 64;
  // Whether consumers need the registers of the producer; handing them over takes a tenth of a microsecond.
  static constexpr bool moves_registers = blocks_m * BN > (Groups == 3 ? 96 : 128);
  // Of a thread of each there are 504, with three who multiply 512.
  static constexpr int producer_registers = blocks_m * BN > 336                  ? 24
                                            : Groups == 3 || blocks_m * BN > 192 ? 40
                                                                                 : 56,
                       consumer_registers = Groups == 3           ? 152
                                            : blocks_m * BN > 336 ? 240
                                            : blocks_m * BN > 192 ? 232
                                                                  : 224;
  static constexpr int a_bytes = BM * tma_ws_k_bytes, b_bytes = tma_ws_column_bytes(BN, MajorB),
                       stage_bytes = tma_ws_stage_bytes(BM, BN, MajorB);
  static constexpr int chunk_columns = tma_ws_chunk_columns(out_columns), chunk = tma_ws_chunk_bytes(out_columns);
  static constexpr int needed = tma_ws_needed_buffers(rows, out_columns);
  static constexpr int buffers =
      tma_ws_buffers(needed, tma_ws_room(Shared, Stages, stage_bytes, Groups, out_columns), TmaStore, out_columns);
  static constexpr int batch = buffers == needed                 ? needed  // chunks that leave together
                               : buffers == tma_ws_small_buffers ? tma_ws_small_buffers / 2
                                                                 : 1;
  // Slots of so many buffers take turns.  Boxes of C or D come into the buffers their results leave from: each slot has
  // a barrier for them.
  static constexpr int slots = buffers / batch;
  static constexpr int shared_bytes = tma_ws_shared_bytes(Stages, stage_bytes, Groups, buffers, out_columns);
#ifdef TW_ON_GPU
  // Where a row of the problem begins in E, in elements; negative where there is none.  A kernel whose rows lie
  // elsewhere hides this.
  static TW_GPU long long row_at(const TmaWsArgs &x, int, int row) {
    return row < (SwapAB ? x.n : x.m) ? row * x.e_stride : -1;
  }
  // The same of columns, where `ragged` says so: which element of a row one is, and where TMA's box begins.
  static TW_GPU long long column_at(const TmaWsArgs &, int column) { return column; }
  struct Corner {
    int column, z;
  };
  static TW_GPU Corner corner(const TmaWsArgs &, int column, int z) { return {column, z}; }
#endif
  static constexpr bool ragged = false;
  static_assert(ClusterK == 1 || (!PingPong && !TmaStore && BM * BN * 4 <= Stages * stage_bytes),
                "the sums of a tile that a cluster shares lie in the stages");
  static_assert(rows % 64 == 0 && BN % 8 == 0 && BN <= 256, "tile");
  // ptxas counts an instruction's registers by what 512 threads start with, whatever they are handed: 128.
  static_assert(Groups == 2 || (Scheduler == TileScheduler::data_parallel && BN <= 192),
                "three warpgroups share whole tiles, 192 wide");
  static_assert(!TmaStore || SwapAB || out_columns % 16 == 0, "results leave 16 columns of rows at a time");
  static_assert(!Dual ||
                    (!SwapAB && !Packed_ && MajorB == 0 && Scheduler == TileScheduler::data_parallel && BN % 16 == 0),
                "two B lie along k, each with whole atoms of a tile's columns");
};

// A tile of results, as those see it who store them.
template <class S> struct ResultsOf : S {
  static constexpr int BN = S::out_columns;
};
template <class S, bool Dual> struct results_of {
  using type = S;
};
template <class S> struct results_of<S, true> {
  using type = ResultsOf<S>;
};

}  // namespace tw
