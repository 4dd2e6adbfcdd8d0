// The numbers of the mla pipeline of attention, for the host that launches and the device that runs.
//
// Heads of 576 elements whose values are the first 512 of their keys: one tile of shared memory is both, and comes once.
// A block has 64 rows, of as many query heads as share the keys.  Results of 512 columns are too many for one warpgroup:
// two have half of the columns each.  The first also has the scores, and leaves their weights in shared memory.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/cuda/attention/mla/memory.h>
#include <tilewright/cuda/attention/ws/shape.h>

namespace tw {

// Config: what attention_rules.h says, and tile_n, stages.
template <class Config> struct AttentionMla {
  using T = typename Config::Q;
  using O = typename Config::O;
  static constexpr int W = 2, BM = mla_rows, BN = Config::tile_n, Stages = Config::stages;
  static constexpr int D = Config::head_qk, DV = Config::head_v;
  static constexpr bool Packed = true, Dynamic = false, PackedRows = Config::packed,
                        Split = Config::family == AttentionFamily::split, Paged = Config::pages != AttentionPages::none;
  static constexpr bool Bounded = Config::mask != AttentionMask::none, Sinks = Config::mask == AttentionMask::generic;
  static constexpr bool scored = Config::softcap || Config::bias != AttentionBias::none || Config::masked;
  static constexpr int line = mla_line, blocks_d = mla_blocks(D), blocks_v = mla_blocks(DV), blocks_n = mla_blocks(BN);
  static constexpr int q_bytes = mla_tile_bytes(BM, D), tile_bytes = mla_tile_bytes(BN, D),
                       p_bytes = mla_tile_bytes(BM, BN);
  static constexpr int threads = 128 * (W + 1), ctas_per_sm = 1;
  static constexpr int producer_registers = mla_producer_registers, consumer_registers = mla_consumer_registers;
  static constexpr int factor_bytes = mla_factor_bytes;
  static constexpr int barriers = 2 * Stages;
  static constexpr int shared_bytes = mla_shared_bytes(Stages, BN, D);
  static_assert(sizeof(T) == 2 && sizeof(typename Config::KV) == 2, "elements of two bytes");
  static_assert(BN % 16 == 0 && D % line == 0 && DV == 512 && D >= DV && Stages >= 2, "tile");
  static_assert(registers_suffice(producer_registers, consumer_registers, W, ctas_per_sm), "registers");
};

struct AttentionMlaArgs {
  AttentionWsArgs ws;
  int values_in_keys;  // a value is the first elements of its key
};

// The same as one warpgroup has the results.
template <class S> struct AttentionMlaHalf : S {
  static constexpr int DV = S::DV / 2;
};

}  // namespace tw
