// The numbers of the ws pipeline of attention, for the host that launches and the device that runs.
//
// A block works on items: a tile of query rows of one head and one sequence (and of one split of its keys), which meets
// the tiles of keys it sees one after another.  One warp has TMA bring rows, keys and values; each of one to
// three warpgroups keeps 64 rows, their scores and their results in registers.  Where there is room for the rows of two
// items, the first scores of one are multiplied beside the last values of the one before.
#pragma once
#include <tilewright/cuda/attention/ws/memory.h>
#include <tilewright/attention_rules.h>
#include <tilewright/cuda/attention/ws/constants.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

constexpr int unbounded_window = 1 << 30;

struct AttentionWsArgs {
  tw_attention_args x;
  float scale, fold;    // of scores; and log2(e), with the scale in it where nothing comes between them
  int flip;             // that scale is negative: of scores with the other sign, `fold` is positive
  float cap, over_cap;  // of scores, 0 where there is none; and 1 / cap
  int heads, group;     // heads that items have; query heads of one head of keys
  Divider by_group;     // of packed heads
  int left, right;      // of the window
  int row_tiles;        // of the longest sequence
  int together;         // heads of sequences whose keys stay in the second-level cache
  int items;            // of stream-K; 0: sequences differ, and the device counts
  int loose;            // behind the last key of a sequence lie other numbers than TMA's zeros
  int page_rows;        // of a box: as many as divide pages and tiles
  unsigned *flags;  // the next item and how many blocks are done, zero before a launch and after it; of stream-K: how
                    // many pieces are there, of the item that a block begins and does not end
  float *parts, *part_lse;  // of stream-K: what blocks have of items that others have too, of `piece_rows` rows
  int piece_rows;
};

// The tiles of keys of an item, from the last to the first: those of the window, then those of sink keys before it.
struct KeyTiles {
  int count, last;   // the first one that is met has the number `last`
  int window, jump;  // after so many of the window, so many are left out
  template <class S> TW_BOTH int at(int i) const { return last - i - (S::Sinks && i >= window ? jump : 0); }
};

struct AttentionItem {
  int tile, head, sequence, split;  // the split of the keys; of stream-K: which piece (attention/stream_k/kernel.h)
  int first_row, rows, first_key, keys;
  KeyTiles tiles;  // count 0: there is no item any more
};

// Whether a block that starts with an even share of the registers has as many as its warpgroups ask for when one gives up
// some and the others take more: who asks for what is not there waits for ever.
constexpr bool registers_suffice(int producer, int consumer, int warpgroups, int ctas_per_sm) {
  const int share = ws_registers / ctas_per_sm / (128 * (warpgroups + 1)) / 8 * 8;
  return producer + warpgroups * consumer <= share * (warpgroups + 1);
}

// Config: what attention_rules.h says, and tile_n, warpgroups, stages, q_stages, pack_heads, dynamic, stream_k, ctas_per_sm.
template <class Config> struct AttentionWs {
  using T = typename Config::Q;
  using O = typename Config::O;
  static constexpr int W = Config::warpgroups, BM = 64 * W, BN = Config::tile_n, Stages = Config::stages,
                       RowStages = Config::q_stages;
  static constexpr int D = Config::head_qk, DV = Config::head_v;
  static constexpr bool Packed = Config::pack_heads, Dynamic = Config::dynamic, StreamK = Config::stream_k,
                        PackedRows = Config::packed, Split = Config::family == AttentionFamily::split,
                        Paged = Config::pages != AttentionPages::none;
  static constexpr bool Bounded = Config::mask != AttentionMask::none;   // a window hides keys
  static constexpr bool Sinks = Config::mask == AttentionMask::generic;  // the first keys are always seen
  // Whether something comes between the scale of a score and its exponential.
  static constexpr bool scored = Config::softcap || Config::bias != AttentionBias::none || Config::masked;
  static constexpr int blocks_d = ws_blocks(D), blocks_v = ws_blocks(DV);
  static constexpr int q_bytes = ws_tile_bytes(BM, D), k_bytes = ws_tile_bytes(BN, D), v_bytes = ws_tile_bytes(BN, DV);
  static constexpr int threads = 128 * (W + 1), ctas_per_sm = Config::ctas_per_sm;
  static constexpr int producer_registers = ws_producer_registers(W, ctas_per_sm, Paged, StreamK),
                       consumer_registers = ws_consumer_registers(W, ctas_per_sm, Paged, StreamK);
  static constexpr bool streams = RowStages > 1;
  static constexpr int slots = ws_items;
  static constexpr int shared_bytes =
      RowStages * ws_row_stage_bytes(BM, D) + Stages * ws_stage_bytes(BN, D, DV) + ws_beside;
  static_assert(sizeof(AttentionItem) == ws_item_bytes, "items");
  static_assert(sizeof(T) == 2, "elements of two bytes");
  static_assert(BN % 16 == 0 && DV % 32 == 0 && D % 16 == 0, "tile");
  static_assert(W >= 1 && W <= 3, "warpgroups");
  static_assert(registers_suffice(producer_registers, consumer_registers, W, ctas_per_sm), "registers");
  static_assert(!StreamK || (Packed && W == 1 && !Dynamic && !Split), "stream-K decode is of packed heads");
  static_assert(RowStages == 1 || !Packed, "rows of packed heads are carried when they are needed");
};

}  // namespace tw
