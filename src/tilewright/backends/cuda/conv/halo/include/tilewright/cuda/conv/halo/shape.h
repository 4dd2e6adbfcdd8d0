// Convolutions over halo tiles of pixels that are fetched once for all taps they serve.
//
// Rows of the product are pixels as a traversal of the padded image counts them, padding included: then the operand of a tap
// is the same run of rows of shared memory for every tap, moved by as many rows as the tap lies behind the first.  Rows
// of padding are multiplied in vain and do not leave.  A halo tile is BM rows and those the taps reach beyond; one serves all
// taps of a plane of the window (three dimensions: a halo tile a plane) and 64 channels.  Where strides are over 1, it serves
// the taps that lie whole strides apart: there are as many kinds of halo tiles as residues.  Weights stay in shared memory
// where a block's fit, and come around in a ring otherwise.
//
// Several groups as one: where a group's rows of weights are whole 8s, TMA lays them out along the diagonal,
// each from so far before its first channel that what it fills in are the zeros beside it.  `Slice`: of each 16 of k only
// the columns are multiplied that some group has there.
#pragma once
#include <tilewright/cuda/conv/halo/memory.h>
#include <tilewright/cuda/conv/tma_ws/shape.h>

namespace tw {

struct ConvHaloArgs : ConvWsArgs {
  int halo;   // rows that are fetched
  int kinds;  // halo tiles of a tile and 64 channels: t.taps says from where, and which is its first tap
  int most[2],
      last_residue[2];   // taps of a halo tile along w and h: one less where it begins behind the last's residue
  int apart_of_taps[2];  // in numbers of taps, along w and h
  int reach[2];          // rows from tap to tap along w and h
  int last_tap;          // backward_data counts taps from the last one on; else -1
  int merged;            // groups whose weights are fetched one by one, and
  int rows_of_one, columns_of_one;  // of each
  int resident;                     // weights stay: a block has one n and z
};

// Config: as for tma_ws; deep (channels that are multiplied: 64, or 32 where there are no more), taps (of weights in
// shared memory), halo_rows (rows there is room for), slice (columns of 16 of k; 0: all), sharing (how many 16s have the same
// columns).
template <class Config> struct ConvHalo {
  using In = typename Config::A;
  using Base = ConvWs<Config>;
  static constexpr int BM = Config::tile_m, BN = Config::tile_n, BK = 64, Halos = Config::stages, Taps = Config::taps;
  static constexpr int Steps = Config::deep / 16;
  static constexpr int Cluster = 1, ClusterM = 1, ClusterN = 1, Group = 1, Spatial = Config::spatial, threads = 384;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr int MajorB = variant == ConvVariant::backward_data;
  static constexpr int Slice = Config::slice ? Config::slice : BN, Sharing = Config::slice ? Config::sharing : 4;
  static constexpr bool PingPong = true, Transposed = false, TmaStore = false, by_classes = true;
  // Warpgroups multiply in turn, so that one's results leave beside the other's products; narrow slices leave the matrix
  // units idle while the next is issued, and both multiply at once.
  static constexpr bool turns = Slice == BN;
  static constexpr int rows = BM, blocks_m = BM / 64;
  static constexpr int halo_bytes = halo_bytes_of(Config::halo_rows), tap_bytes = tma_ws_column_bytes(BN, MajorB);
  static constexpr int chunk_columns = Base::chunk_columns, chunk = Base::chunk, row_bytes = chunk_columns * 2 + 16;
  static constexpr int buffers = halo_buffers;
  static constexpr int shared_bytes = halo_shared_bytes(Halos, Config::halo_rows, Taps, BN, MajorB);
  static_assert(sizeof(In) == 2 && sizeof(typename Config::C) == 2 && variant != ConvVariant::backward_weight, "types");
  static_assert(BM % 64 == 0 && BN % 16 == 0 && tap_bytes % 1024 == 0 && halo_bytes % 1024 == 0, "tile");
  static_assert(16 * (Halos + Taps) <= halo_barriers, "barriers");
  static_assert(!MajorB || 64 % Slice == 0 || Slice % 64 == 0, "a slice lies within 64 columns, or is whole 64s");
  static_assert(Steps == 4 || (Steps == 2 && !Config::merged), "all of a stage, or half of it");

#ifdef TW_ON_GPU
  static TW_GPU long long row_at(const TmaWsArgs &args, int z, int row) {
    auto &x = static_cast<const ConvWsArgs &>(args);
    if (row >= x.m) return -1;
    long long at = z * x.group_apart;
    int left = row;
#pragma unroll
    for (int i = 0; i < Spatial; ++i) {
      const int next = x.grid.size[i].quotient(left), pixel = left - next * int(x.grid.size[i].by);
      if (pixel >= x.inside[i]) return -1;
      at += pixel * x.apart[i];
      left = next;
    }
    return at + left * x.apart[3];
  }
#endif
};

}  // namespace tw
