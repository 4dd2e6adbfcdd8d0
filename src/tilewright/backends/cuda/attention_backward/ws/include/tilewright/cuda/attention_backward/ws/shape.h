// The numbers of the ws pipeline of attention's gradients, for the host that launches and the device that runs.
//
// A block owns a tile of keys of one head of keys and one sequence, and meets the tiles of query rows that see it, of all
// query heads of its group one after another: dk and dv stay in registers and are written once.  Scores are kept
// transposed, keys along rows: each of two warpgroups has 64 keys, and weights and gradients of scores go from its
// registers into the products for dv and dk.  Only dq is added up over blocks, in fp32, by TMA; for it the
// gradients of scores lie in shared memory, where both warpgroups read them.
//
// Where that would be fewer blocks than a device has multiprocessors, or some much longer than others, several blocks
// share a tile of keys (`accumulate` is all): each meets a part of the rows, and leaves its accumulators of dk and dv in fp32
// where no other writes, for `convert` to add up in one order.
#pragma once
#include <tilewright/cuda/attention_backward/entries.h>

namespace tw {

struct AttentionBackwardWsArgs : BackwardCall {
  int key_tiles;  // of the longest sequence
  int together;   // heads of sequences whose tiles are mixed, a chunk
  int chunks;     // the last has all heads that are left
  int down_from;  // the first chunk whose blocks go from the last rows to the first
  int parts;      // blocks that share a tile of keys
  int resident;   // blocks that run at a time
  int loose_rows,
      loose_keys;   // behind the last row or key of a sequence lie other numbers than TMA's zeros
  Dropout drops;    // its seed lies in memory where the call says so
  unsigned *turns;  // whose turn it is to add to a tile of dq; null where any order will do
};

// Config: what attention_backward_rules.h says, and tile_m, q_stages, do_stages, ds_stages, ahead.
template <class Config> struct AttentionBackwardWs {
  using T = typename Config::T;
  static constexpr int W = 2, BM = Config::tile_m, BN = 64 * W, QStages = Config::q_stages,
                       DoStages = Config::do_stages, DsStages = Config::ds_stages;
  static constexpr bool Ahead = Config::ahead;  // scores of the next tile run beside the last product of this one
  static constexpr int D = Config::head_qk, DV = Config::head_v;
  static constexpr bool Wide = false;  // each warpgroup has keys of its own and all rows of a tile
  static constexpr int SN = BM;        // rows that a warpgroup scores
  static constexpr bool Shares = Config::accumulate == AttentionAccumulate::all;  // blocks share a tile of keys
  static constexpr bool Crowded = D + DV > 192 && BM > 64;
  static constexpr bool Bounded = Config::mask != AttentionMask::none;  // a window hides keys
  // More is done to scores than a softmax, of entries whose rows must be distinguished from those behind the last.
  static constexpr bool Scored = backward_scored<Config> || Config::masked || Config::dropout;
  static constexpr bool Sinks = Config::mask == AttentionMask::generic;      // the first keys are always seen
  static constexpr int blocks_d = (D + 63) / 64, blocks_v = (DV + 63) / 64;  // 128 bytes of each row
  static constexpr int q_bytes = blocks_d * BM * 128, o_bytes = blocks_v * BM * 128;
  static constexpr int k_bytes = blocks_d * BN * 128, v_bytes = blocks_v * BN * 128;
  // Gradients of scores: rows of queries, 128 bytes of keys a warpgroup.
  static constexpr int score_bytes = W * BM * 128;
  // Of dq a warpgroup has 64 elements of all rows; where there are no more elements, half of the rows.
  static constexpr int dq_rows = blocks_d == W ? BM : BM / W, dq_bytes = 2 * dq_rows * 128;  // of one warpgroup
  static constexpr int pieces = 1;                                                           // of dq, one after another
  static constexpr int threads = 128 * (W + 1);
  static constexpr int producer_registers = 24, consumer_registers = 240;
  static constexpr int row_numbers = 2 * BM * 4;  // what `dot` prepared
  static constexpr int barriers = 2 + 2 * QStages + 2 * DoStages;
  static constexpr int shared_bytes = 1024 + k_bytes + v_bytes + QStages * (q_bytes + row_numbers) +
                                      DoStages * o_bytes + DsStages * score_bytes + W * dq_bytes + 8 * barriers;
  static_assert(sizeof(T) == 2, "elements of two bytes");
  static_assert(BM % 16 == 0 && dq_rows % 8 == 0, "tile");
  static_assert(blocks_d <= W && blocks_v <= W && D % 16 == 0 && DV % 16 == 0, "heads");
  static_assert(QStages >= 2 && DoStages >= 1 && DsStages >= 1 && DsStages <= 2, "stages");
};

}  // namespace tw
