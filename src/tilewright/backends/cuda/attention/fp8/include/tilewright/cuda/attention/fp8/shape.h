// The numbers of the fp8 pipeline of attention, for the host that launches and the device that runs.
//
// As the ws pipeline, with elements of one byte, which wgmma reads along k only: so values are transposed in shared memory,
// from rows of keys to rows of columns, by warps that have nothing else to do.  Weights become fp8 too, 2^8 times as
// large as they are, so that few fall below its smallest number.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/cuda/attention/fp8/memory.h>
#include <tilewright/cuda/attention/ws/shape.h>

namespace tw {

// Config: what attention_rules.h says, and tile_n, warpgroups, stages.
template <class Config> struct AttentionFp8 {
  using T = typename Config::Q;
  using O = typename Config::O;
  static constexpr int W = Config::warpgroups, BM = 64 * W, BN = Config::tile_n, Stages = Config::stages;
  static constexpr int D = Config::head_qk, DV = Config::head_v;
  static constexpr int first = (BN / 32 + 1) / 2 * 32, second = BN - first;  // keys of the parts of a tile
  static constexpr bool Packed = false, Dynamic = false, PackedRows = Config::packed,
                        Split = Config::family == AttentionFamily::split, Paged = Config::pages != AttentionPages::none;
  static constexpr bool Bounded = Config::mask != AttentionMask::none, Sinks = Config::mask == AttentionMask::generic;
  static constexpr bool scored = Config::softcap || Config::bias != AttentionBias::none || Config::masked;
  static constexpr int line = fp8_line, blocks_d = fp8_blocks(D), blocks_v = fp8_blocks(DV), blocks_n = fp8_blocks(BN);
  static constexpr int q_bytes = fp8_tile_bytes(BM, D), k_bytes = fp8_tile_bytes(BN, D),
                       v_bytes = fp8_tile_bytes(BN, DV), transposed_bytes = fp8_transposed_bytes(BN, DV);
  static constexpr int turners = 3;  // warps
  static constexpr int threads = 128 * (W + 1), ctas_per_sm = 1;
  static constexpr int held = fp8_held_registers(DV, BN, scored + Config::dropout);
  static constexpr bool large = fp8_large(held);
  static constexpr int producer_registers = fp8_producer_registers(W, held),
                       consumer_registers = fp8_consumer_registers(W, held);
  static constexpr int shared_bytes = q_bytes + Stages * fp8_stage_bytes(BN, D, DV) + fp8_beside;
  static_assert(sizeof(T) == 1 && sizeof(typename Config::KV) == 1, "elements of one byte");
  static_assert(BN % 32 == 0 && BN >= 64 && DV % 32 == 0 && D % 32 == 0, "tile");
  static_assert(W >= 1 && W <= 3, "warpgroups");
  static_assert(registers_suffice(producer_registers, consumer_registers, W, ctas_per_sm), "registers");
};

}  // namespace tw
