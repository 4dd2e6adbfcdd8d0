// The numbers of the ws pipeline of attention's gradients with heads over 128, whose dk and dv of 64 keys no warpgroup's
// registers hold.
//
// Both warpgroups have the same 64 keys.  Each scores half of a tile's rows, and leaves weights and gradients of scores in
// shared memory; from there each multiplies for half of the columns of dk, dv and dq, in blocks of 64.  Of an odd number
// of blocks the last is shared: each warpgroup adds up its rows for dk and dv, put together at the end, and has the rows
// of dq that it scored.
#pragma once
#include <tilewright/cuda/attention_backward/ws/shape.h>

namespace tw {

// Config: as AttentionBackwardWs.
template <class Config> struct AttentionBackwardWide {
  using T = typename Config::T;
  static constexpr int W = 2, BM = Config::tile_m, BN = 64, SN = BM / W, QStages = Config::q_stages,
                       DoStages = Config::do_stages, DsStages = Config::ds_stages;
  static constexpr bool Wide = true, Ahead = Config::ahead;
  static constexpr bool Shares = Config::accumulate == AttentionAccumulate::all;
  static constexpr int D = Config::head_qk, DV = Config::head_v;
  static constexpr bool Bounded = Config::mask != AttentionMask::none, Sinks = Config::mask == AttentionMask::generic;
  static constexpr bool Scored = backward_scored<Config> || Config::masked || Config::dropout;
  static constexpr int blocks_d = (D + 63) / 64, blocks_v = (DV + 63) / 64;
  static constexpr int whole_d = blocks_d / W, whole_v = blocks_v / W;  // blocks that a warpgroup has for itself
  static constexpr bool odd_d = blocks_d % W, odd_v = blocks_v % W;     // and one that both share
  static constexpr int pieces = whole_d + odd_d;                        // of dq, one after another
  static constexpr int q_bytes = blocks_d * BM * 128, o_bytes = blocks_v * BM * 128;
  static constexpr int k_bytes = blocks_d * BN * 128, v_bytes = blocks_v * BN * 128;
  // Weights, then gradients of scores: rows of queries, 128 bytes of keys.
  static constexpr int weight_bytes = BM * 128, score_bytes = 2 * weight_bytes;
  // A piece of dq: boxes of half of the rows and 32 elements.
  static constexpr int dq_rows = BM / W, box_bytes = dq_rows * 128, dq_bytes = 4 * box_bytes;  // of one warpgroup
  static constexpr int threads = 128 * (W + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr int row_numbers = 2 * BM * 4;
  static constexpr int barriers = 2 + 2 * QStages + 2 * DoStages;
  static constexpr int shared_bytes = 1024 + k_bytes + v_bytes + QStages * (q_bytes + row_numbers) +
                                      DoStages * o_bytes + DsStages * score_bytes + W * dq_bytes + 8 * barriers;
  static_assert(sizeof(T) == 2, "elements of two bytes");
  static_assert(BM % 32 == 0 && dq_rows % 8 == 0, "tile");
  static_assert(D % 32 == 0 && DV % 32 == 0 && D <= 256 && DV <= 256, "heads");
  static_assert(QStages >= 2 && DoStages >= 1 && DsStages == 2, "stages");
  // Accumulators of a shared block are handed over where weights were.
  static_assert(DsStages * score_bytes >= (odd_d + odd_v) * 64 * 64 * 4, "room for sums");
};

}  // namespace tw
