// How rows, keys and values come into shared memory in the fp8 pipeline of attention, and how values are transposed there.
#pragma once
#include <tilewright/cuda/attention/tma_boxes.h>
#include <tilewright/cuda/attention/fp8/shape.h>
#include <tilewright/cuda/attention/mma/producer.h>
#include <tilewright/cuda/attention/warp_roles.h>
#include <tilewright/cuda/primitives/mma.h>
#include <tilewright/cuda/primitives/tma.h>
#include <tilewright/cuda/primitives/wgmma.h>

#ifdef TW_ON_GPU
namespace tw {

// Rows of queries, stages of keys, of values and of values transposed, from a multiple of 1024 bytes on; barriers.
template <class S> struct SharedFp8 {
  char *base = shared_tiles();
  TW_GPU char *q() const { return base; }
  TW_GPU char *k(int stage) const { return base + S::q_bytes + stage * S::k_bytes; }
  TW_GPU char *v(int stage) const { return k(S::Stages) + stage * S::v_bytes; }
  TW_GPU char *transposed(int stage) const { return v(S::Stages) + stage * S::transposed_bytes; }
  TW_GPU Barrier &full_k(int stage) const { return barrier(stage); }
  TW_GPU Barrier &empty_k(int stage) const { return barrier(S::Stages + stage); }
  TW_GPU Barrier &full_v(int stage) const { return barrier(2 * S::Stages + stage); }
  TW_GPU Barrier &empty_v(int stage) const { return barrier(3 * S::Stages + stage); }
  TW_GPU Barrier &full_transposed(int stage) const { return barrier(4 * S::Stages + stage); }
  TW_GPU Barrier &empty_transposed(int stage) const { return barrier(5 * S::Stages + stage); }
  TW_GPU Barrier &full_q() const { return barrier(6 * S::Stages); }
  TW_GPU Barrier &empty_q() const { return barrier(6 * S::Stages + 1); }

  TW_GPU void init() const {
    for (int i = 0; i < S::Stages; ++i) {
      full_k(i).init(1), full_v(i).init(1), full_transposed(i).init(S::turners);
      empty_k(i).init(S::W), empty_v(i).init(S::turners), empty_transposed(i).init(S::W);
    }
    full_q().init(1), empty_q().init(S::W);
    fence_barriers();
  }

 private:
  TW_GPU Barrier &barrier(int number) const { return reinterpret_cast<Barrier *>(transposed(S::Stages))[number]; }
};

// The producer warp: rows of an item, then its keys and values tile by tile.
template <class S> struct Fp8Producer {
  const TensorMap &map_q, &map_k, &map_v;
  const AttentionWsArgs &x;
  const SharedFp8<S> &shared;

  TW_GPU void run() const {
    AttentionOrder<S> order(x);
    AttentionItem item;
    Ring<S::Stages> ring;
    Ring<1> rows;
    const int lane = int(threadIdx.x % 32);
    while (order.next(item)) {
      const KeyTiles tiles = tiles_of<S>(x, item);
      if (tiles.count == 0) continue;
      shared.empty_q().wait(rows.phase ^ 1);
      if (lane == 0) {
        shared.full_q().expect(S::q_bytes);
#pragma unroll
        for (int j = 0; j < S::blocks_d; ++j)
          tma_load_rows(&map_q, &shared.full_q(), shared.q() + j * S::BM * S::line, j * S::line,
                        item.first_row + item.tile * S::BM, item.head, x.x.starts_q ? 0 : item.sequence);
      }
      rows.next();
      const int head = x.by_group.quotient(item.head);
      for (int i = 0; i < tiles.count; ++i, ring.next()) {
        const int key = tiles.template at<S>(i) * S::BN;
        shared.empty_k(ring.stage).wait(ring.phase ^ 1);
        bring_tile<S, S::blocks_d, S::line>(x, map_k, shared.full_k(ring.stage), shared.k(ring.stage), item, key, head);
        shared.empty_v(ring.stage).wait(ring.phase ^ 1);
        bring_tile<S, S::blocks_v, S::line>(x, map_v, shared.full_v(ring.stage), shared.v(ring.stage), item, key, head);
      }
      __syncwarp();
    }
  }
};

// The warps that turn values.  Pairs of bytes are transposed by ldmatrix; of two pairs the even and the odd columns are
// put together.  So 16 keys come to lie in the order 0 1 8 9, 2 3 10 11, ..., in which a thread has its weights of them.
// Of 16 columns the even ones come first, then the odd ones: rows that stmatrix writes together are in different banks.
template <class S> struct ValueTurner {
  const AttentionWsArgs &x;
  const SharedFp8<S> &shared;
  int who;  // of the turning warps

  TW_GPU void run() const {
    AttentionOrder<S> order(x);
    AttentionItem item;
    Ring<S::Stages> ring;
    while (order.next(item)) {
      const KeyTiles tiles = tiles_of<S>(x, item);
      for (int i = 0; i < tiles.count; ++i, ring.next()) {
        shared.full_v(ring.stage).wait(ring.phase);
        shared.empty_transposed(ring.stage).wait(ring.phase ^ 1);
        const int there = item.keys - tiles.template at<S>(i) * S::BN;
        if (there < S::BN) turn_some(shared.v(ring.stage), shared.transposed(ring.stage), there);
        else turn_all(shared.v(ring.stage), shared.transposed(ring.stage));
        fence_async_proxy();
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
          shared.full_transposed(ring.stage).arrive();
          shared.empty_v(ring.stage).arrive();
        }
      }
    }
  }

 private:
  // A whole tile.  A warp has a scheduler's attention seldom: every place is known when this is compiled, but for what
  // lanes add, and several loads are under way.
  TW_GPU void turn_all(const char *from, char *to) const {
    if (who == 0) turn_share<0>(from, to);
    else if (who == 1) turn_share<1>(from, to);
    else turn_share<2>(from, to);
  }
  template <int Who> TW_GPU void turn_share(const char *from, char *to) const {
    constexpr int pieces = S::DV / 16, units = S::BN / 32 * pieces, each = (units + S::turners - 1) / S::turners;
    constexpr int most = S::producer_registers < 64 ? 2 : 4;
    constexpr int rounds = (each + most - 1) / most, at_once = (each + rounds - 1) / rounds;
    const int lane = int(threadIdx.x % 32), column = lane % 16;
    const char *rows = from + lane * S::line;
    char *columns = to + column * S::line;
    const int row_at = lane % 8 * 16, column_at = (lane / 16 ^ column % 8) * 16;
#pragma unroll
    for (int first = Who; first < units; first += at_once * S::turners) {
      uint32_t w[at_once][4];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int unit = first + i * S::turners, group = unit / pieces, piece = unit % pieces;
        if (unit < units)
          load_matrices_transposed(
              w[i], rows + (row_at ^ piece % 8 * 16) + piece / 8 * S::BN * S::line + group * 32 * S::line);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int unit = first + i * S::turners, group = unit / pieces, piece = unit % pieces;
        if (unit < units)
          store_matrices(columns + (column_at ^ group % 4 * 32) + group / 4 * S::DV * S::line + piece * 16 * S::line,
                         permute(w[i][0], w[i][1], 0x6420), permute(w[i][0], w[i][1], 0x7531),
                         permute(w[i][2], w[i][3], 0x6420), permute(w[i][2], w[i][3], 0x7531));
      }
    }
  }
  // The tile with the last keys.  `there`: those that exist; what lies behind them may be NaN, and counts as 0.
  TW_GPU void turn_some(const char *from, char *to, int there) const {
    constexpr int pieces = S::DV / 16, all = (pieces + S::turners - 1) / S::turners, at_once = all < 2 ? all : 2;
    const int lane = int(threadIdx.x % 32), column = lane % 16;
#pragma unroll 1
    for (int group = 0; group < S::BN / 32; ++group) {
      const int slice = group * 2 + lane / 16;  // of 16 keys
      const char *rows = from + (group * 32 + lane) * S::line;
      char *columns = to + slice / 8 * S::DV * S::line + column * S::line + (slice % 8 ^ column % 8) * 16;
#pragma unroll 1
      for (int first = (who + group) % S::turners; first < pieces; first += at_once * S::turners) {
        uint32_t w[at_once][4];
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          if (const int piece = first + i * S::turners; piece < pieces)
            load_matrices_transposed(w[i], rows + piece / 8 * S::BN * S::line + (piece % 8 ^ lane % 8) * 16);
        if (group * 32 + 32 > there) clear(w, there - group * 32 - lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          if (const int piece = first + i * S::turners; piece < pieces)
            store_matrices(columns + piece * 16 * S::line, permute(w[i][0], w[i][1], 0x6420),
                           permute(w[i][0], w[i][1], 0x7531), permute(w[i][2], w[i][3], 0x6420),
                           permute(w[i][2], w[i][3], 0x7531));
      }
    }
  }
  // Keys 8 m and 8 m + 1 behind a thread's first are the halves of word m.
  template <int Count> TW_GPU static void clear(uint32_t (&w)[Count][4], int there) {
#pragma unroll
    for (int i = 0; i < Count; ++i)
#pragma unroll
      for (int m = 0; m < 4; ++m) w[i][m] = m * 8 >= there ? 0 : m * 8 + 1 >= there ? w[i][m] & 0xffffu : w[i][m];
  }
};

}  // namespace tw
#endif
