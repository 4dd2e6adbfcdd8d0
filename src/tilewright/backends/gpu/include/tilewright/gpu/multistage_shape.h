// The numbers of the multistage pipeline, for the host that launches and the device that runs.
#pragma once
#include <tilewright/gpu/epilogue.h>
#include <tilewright/gpu/tile_memory.h>
#include <tilewright/gpu/tile_order.h>

namespace tw {

struct MultistageArgs {
  int m, n, k;
  TileOrder order;
  const void *a, *b;
  void *e;
  long long a_stride, b_stride, e_stride, a_batch, b_batch, e_batch;  // in elements
  float *partial;                                                     // split-K: a tile of accumulators for each block
  unsigned *flags;                                                    // zero before a launch and after it
  EpilogueArgs finish;
};

template <class T> struct is_float {
  static constexpr bool value = false;
};
template <> struct is_float<float> {
  static constexpr bool value = true;
};
template <bool plain, class T, int Lines, int Deep, bool AlongK> struct place_of {
  using type = Tile<T, Lines, Deep, AlongK>;
};
template <class T, int Lines, int Deep, bool AlongK> struct place_of<true, T, Lines, Deep, AlongK> {
  using type = PlainTile<Lines, Deep, AlongK>;
};

// How an operand comes into shared memory.  Vector: the bytes its rows are aligned to.  From four on they
// are copied as they are, that many at a time.  Below, whole 16-byte words around the wanted bytes are
// copied (raw rows have room for one more), and a pass over shared memory moves them into place; bytes
// whose lines are contiguous are also transposed there, for matrix instructions read bytes along k.  `Plain`
// floats, which no matrix instruction reads, lie along lines: those contiguous along k come one by one and
// are transposed on the way, whatever their alignment.
template <class T, int Lines_, int Deep_, bool KContiguous_, int Vector_> struct Operand {
  using Element = T;
  static constexpr int Lines = Lines_, Deep = Deep_, Vector = Vector_, size = sizeof(T);
  static constexpr bool KContiguous = KContiguous_;
  static constexpr bool plain = is_float<T>::value, single = operand_single(plain, KContiguous);
  static constexpr bool transposed = operand_transposed(size, KContiguous),
                        realigned = operand_realigned(size, KContiguous, Vector);
  using Place = typename place_of<plain, T, Lines, Deep, KContiguous || transposed>::type;
  static constexpr int rows = operand_rows(Lines, Deep, KContiguous),
                       width = operand_width(size, Lines, Deep, KContiguous);    // of the source
  static constexpr int piece = operand_piece(size, plain, KContiguous, Vector);  // of a row
  static constexpr int pieces = operand_pieces(size, Lines, Deep, plain, KContiguous, Vector);
  static constexpr int raw_row = operand_raw_row(size, Lines, Deep, KContiguous);
  static constexpr int stage_bytes = operand_stage_bytes(size, Lines, Deep, plain, KContiguous, Vector);
  static constexpr int realigned_bytes = operand_realigned_bytes(size, Lines, Deep, plain, KContiguous, Vector);
};

// Config: A, B, C, a_rows, b_rows, tile_m, tile_n, tile_k, warps_m, warps_n, unit_m (rows of one
// matrix instruction, or what counts as one), stages, vector_a, vector_b (bytes), tile_scheduler.
template <class Config> struct Multistage {
  using A = Operand<typename Config::A, Config::tile_m, Config::tile_k, Config::a_rows, Config::vector_a>;
  using B = Operand<typename Config::B, Config::tile_n, Config::tile_k, !Config::b_rows, Config::vector_b>;
  using Sum = typename sum_of<typename Config::A>::type;
  static constexpr TileScheduler Scheduler = Config::tile_scheduler;
  static constexpr int BM = Config::tile_m, BN = Config::tile_n, BK = Config::tile_k, Stages = Config::stages;
  static constexpr int warps = Config::warps_m * Config::warps_n, threads = warps * 32;
  static constexpr int warp_m = BM / Config::warps_m, warp_n = BN / Config::warps_n;
  static constexpr int stage_bytes = A::stage_bytes + B::stage_bytes, realigned_at = Stages * stage_bytes;
  static constexpr int ring_bytes = realigned_at + A::realigned_bytes + B::realigned_bytes;
  static constexpr int staging_rows = Config::warps_m * Config::unit_m;
  static constexpr int shared_bytes = multistage_shared_bytes(ring_bytes, Config::warps_m, BN);
  static_assert(Config::unit_m == multistage_unit_rows, "rows of a unit");
  // Blocks that a multiprocessor holds at a time, at least: the compiler keeps to the registers that leaves.  Plain
  // multiply-adds need other warps beside them where a thread has few accumulators; so do four-byte matrix instructions, whose
  // fragments are not loaded ahead, and whose copies fill memory's pipe only when several blocks have some under way.
  static constexpr int accum = BM * BN / threads;
  static constexpr bool wide = A::size == 4 && !A::plain;
  static constexpr bool roomy = accum <= (wide ? 32 : 64) && !(wide && (A::Vector < 16 || B::Vector < 16));
  static constexpr int at_once = roomy ? 512 : wide ? 384 : 256;  // threads
  static constexpr int ctas_per_sm = (A::plain || wide) && at_once > threads ? at_once / threads : 1;
  // What the host counts with when it chooses the splits of k: seconds of a k-block beside others, and how much longer alone.
  static constexpr double through = double(BM) * BN * BK / (wide ? Config::Arch::wide_macs : Config::Arch::plain_macs);
  static constexpr double fetched = wide ? double(BM + BN) * BK * A::size / Config::Arch::wide_bytes : 0;
  static constexpr double step = through > fetched ? through : fetched, alone = wide ? 1.5 : 1.2;
  static_assert(warp_m % Config::unit_m == 0, "a warp's part is whole units");
  static_assert(threads % A::pieces == 0 && threads % B::pieces == 0, "a thread's pieces lie in one column");
  static_assert(Stages >= 2, "stages");
};

}  // namespace tw
