// What the producer warps of attention's gradients do: one has TMA bring keys, values, rows, their gradients and what
// `dot` prepared of them; two have TMA add dq to its accumulators, one for each warpgroup.
#pragma once
#include <tilewright/cuda/attention_backward/ws/shared.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/tma.h>

namespace tw {

// Named barriers; 0 is that of the block.
enum : int { backward_sync = 1, backward_dq_empty = 2, backward_dq_full = 4 };

template <class S> TW_GPU void bring_rows(const TensorMap &map, Barrier &full, char *to, int blocks, int lines, int row,
                                          int head, int sequence) {
  for (int j = 0; j < blocks; ++j) tma_load_rows(&map, &full, to + j * lines * 128, j * 64, row, head, sequence);
}
// What `dot` prepared of a tile's rows, as far as there is any (BackwardMultiplier::mend_rows).
template <class S> TW_GPU void bring_numbers(const AttentionBackwardWsArgs &x, const SharedBackward<S> &shared,
                                             Barrier &full, int stage, int64_t at, int there) {
  bulk_load(static_cast<const float *>(x.x.lse_log2) + at, &full, shared.lse(stage), uint32_t(there) * 4);
  bulk_load(static_cast<const float *>(x.x.delta) + at, &full, shared.delta(stage), uint32_t(there) * 4);
}

// What the block that runs behind this one begins with, on its way into the second-level cache.
template <class S> TW_GPU void fetch_next(const TensorMap &map_q, const TensorMap &map_k, const TensorMap &map_v,
                                          const TensorMap &map_o, const AttentionBackwardWsArgs &x) {
  const int number = int(blockIdx.x) + x.resident;
  if (number >= int(gridDim.x)) return;
  const BackwardItem item = item_of_block<S>(x, number);
  const BackwardSteps steps(item, x.group);
  if (!steps.more()) return;
  const int of_rows = x.x.starts_q ? 0 : item.sequence, of_keys = x.x.starts_k ? 0 : item.sequence;
  const int key = item.first_key + item.tile * S::BN, row = item.first_row + steps.tile * S::BM;
  for (int j = 0; j < S::blocks_d; ++j) {
    tma_prefetch_rows(&map_k, j * 64, key, item.head, of_keys);
    tma_prefetch_rows(&map_q, j * 64, row, steps.head, of_rows);
  }
  for (int j = 0; j < S::blocks_v; ++j) {
    tma_prefetch_rows(&map_v, j * 64, key, item.head, of_keys);
    tma_prefetch_rows(&map_o, j * 64, row, steps.head, of_rows);
  }
}

// One thread.  It waits for the kernel before, `dot` or `clear`, where it needs what that one prepared.
template <class S> TW_GPU void produce_tiles(const TensorMap &map_q, const TensorMap &map_k, const TensorMap &map_v,
                                             const TensorMap &map_o, const AttentionBackwardWsArgs &x,
                                             const SharedBackward<S> &shared, const BackwardItem &item) {
  BackwardSteps steps(item, x.group);
  if (!steps.more()) return;
  const int of_rows = x.x.starts_q ? 0 : item.sequence, of_keys = x.x.starts_k ? 0 : item.sequence;
  const int key = item.first_key + item.tile * S::BN, end = int(prepared_end(item.rows));
  Ring<S::QStages> rows;
  Ring<S::DoStages> outs;
  operands_are_there();
  shared.full_k().expect(S::k_bytes);
  bring_rows<S>(map_k, shared.full_k(), shared.k(), S::blocks_d, S::BN, key, item.head, of_keys);
#pragma unroll 1
  for (bool first = true; steps.more(); steps.next(), first = false) {
    const int before = steps.tile * S::BM, row = item.first_row + before, there = min(S::BM, end - before);
    const int64_t numbers = prepared_at(x.x, item.sequence, steps.head) + before;
    Barrier &full_q = shared.full_q(rows.stage), &full_o = shared.full_o(outs.stage);
    shared.empty_q(rows.stage).wait(rows.phase ^ 1);
    full_q.expect(uint32_t(S::q_bytes + there * 8));
    bring_rows<S>(map_q, full_q, shared.q(rows.stage), S::blocks_d, S::BM, row, steps.head, of_rows);
    if (first) {
      shared.full_v().expect(S::v_bytes);
      bring_rows<S>(map_v, shared.full_v(), shared.v(), S::blocks_v, S::BN, key, item.head, of_keys);
    } else {
      bring_numbers(x, shared, full_q, rows.stage, numbers, there);
    }
    shared.empty_o(outs.stage).wait(outs.phase ^ 1);
    full_o.expect(S::o_bytes);
    bring_rows<S>(map_o, full_o, shared.o(outs.stage), S::blocks_v, S::BM, row, steps.head, of_rows);
    if (first) {
      wait_for_kernel_before();
      bring_numbers(x, shared, full_q, rows.stage, numbers, there);
    }
    rows.next(), outs.next();
  }
  fetch_next<S>(map_q, map_k, map_v, map_o, x);
}

// Whose turn it is to add to a tile of rows: how many tiles of keys that see it come before this one.  Nobody waits for a
// block that was launched later, which may not have begun.
template <class S> TW_GPU unsigned turn_of(const AttentionBackwardWsArgs &x, const BackwardItem &item, int tile) {
  if (!S::Bounded || item.down) return unsigned(item.tile);
  // The last tile of keys that any of these rows sees comes first, tiles of sink keys before the window after all of it.
  const int first_row = tile * S::BM, last_row = min(first_row + S::BM, item.rows) - 1;
  int end = item.keys;
  if (x.right < backward_unbounded) end = min(end, last_row + item.shift + x.right + 1);
  const int last = (end - 1) / S::BN;
  if (!S::Sinks || x.left >= backward_unbounded) return unsigned(last - item.tile);
  const int begin = max(0, first_row + item.shift - x.left), low = begin < item.keys ? begin / S::BN : last + 1;
  const int sinks = (min(int(x.x.sink_keys), item.keys) + S::BN - 1) / S::BN;
  return unsigned(last - item.tile - (item.tile < low ? max(0, low - sinks) : 0));
}

// One thread's turns, where accumulators have an order.
template <class S> struct BackwardTurns {
  const AttentionBackwardWsArgs &x;
  const BackwardItem &item;
  const int who;
  unsigned *word = nullptr;     // whose turn it is at the tile of rows that comes next
  unsigned mine = 0, seen = 0;  // at the first tile of a block that is the first nobody is waited for
  TW_GPU BackwardTurns(const AttentionBackwardWsArgs &args, const BackwardItem &of, int warpgroup)
      : x(args), item(of), who(warpgroup) {}

  TW_GPU void next(const BackwardSteps &steps) {
    const int row_tiles = int((x.x.rows + S::BM - 1) / S::BM);
    word = x.turns + ((int64_t(item.sequence) * x.x.heads_q + steps.head) * row_tiles + steps.tile) * S::W + who;
    mine = turn_of<S>(x, item, steps.tile);
  }
  TW_GPU void await() {
    while (seen != mine) {
      seen = look_at(word);
      if (seen != mine) TW_SPIN();
    }
  }
  // Where all is added the next block may add; meanwhile comes the word of this one's next tile.
  TW_GPU void pass(const BackwardSteps &steps) {
    unsigned *done = word;
    if (steps.more()) next(steps), seen = glance_at(word);
    tma_wait_written<0>();
    pass_on(done);
  }
};

// What a warpgroup left of a tile's dq: 64 elements of all rows, or of half of them, in boxes of 32 elements.
template <class S> TW_GPU void add_boxes(const TensorMap &map, const SharedBackward<S> &shared, int who, int piece,
                                         int row, int head, int of_rows) {
  if constexpr (S::Wide) {
    const bool half = piece == S::whole_d;  // the columns that warpgroups share
    const int column = (half ? S::blocks_d - 1 : who * S::whole_d + piece) * 64;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < 2 || !half)
        tma_add_rows(&map, shared.dq(who) + j * S::box_bytes, column + j % 2 * 32,
                     row + (half ? who : j / 2) * S::dq_rows, head, of_rows);
  } else {
    const int first = row + (S::blocks_d == S::W ? 0 : who * S::dq_rows), column = S::blocks_d == S::W ? who * 64 : 0;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      tma_add_rows(&map, shared.dq(who) + j * S::dq_rows * 128, column + j * 32, first, head, of_rows);
  }
}

// A warp, for warpgroup `who`; one lane of it works.  It waits for its turn while the tile is multiplied, and gives the
// place of dq back before the accumulators are written.
template <class S> TW_GPU void add_dq(const TensorMap &map, const AttentionBackwardWsArgs &x,
                                      const SharedBackward<S> &shared, const BackwardItem &item, int who) {
  const int lane = int(threadIdx.x % 32), first_row = int(prepared_first(x.x.starts_q, item.sequence));
  const int of_rows = x.x.starts_q ? 0 : item.sequence;
  const bool in_turns = x.turns && lane == 0;
  BackwardSteps steps(item, x.group);
  BackwardTurns<S> turns(x, item, who);
  if (steps.more()) named_arrive(backward_dq_empty + who, 160);
  if (steps.more() && in_turns) turns.next(steps);
#pragma unroll 1
  while (steps.more()) {
    const int tile = steps.tile, head = steps.head;
    if (in_turns) turns.await();
    __syncwarp();
#pragma unroll 1
    for (int piece = 0; piece < S::pieces; ++piece) {
      named_barrier(backward_dq_full + who, 160);
      if (lane == 0) {
        add_boxes<S>(map, shared, who, piece, first_row + tile * S::BM, head, of_rows);
        tma_commit();
        tma_wait_read<0>();
      }
      __syncwarp();
      const bool last = piece + 1 == S::pieces;
      if (last) steps.next();
      if (!last || steps.more()) named_arrive(backward_dq_empty + who, 160);
    }
    if (in_turns) turns.pass(steps);
  }
  if (lane == 0) tma_wait_written<0>();
}

}  // namespace tw
#endif
