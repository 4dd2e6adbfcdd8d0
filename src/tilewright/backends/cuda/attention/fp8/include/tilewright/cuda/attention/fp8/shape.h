// The numbers of the fp8 pipeline of attention, for the host that launches and the device that runs.
//
// As the ws pipeline, with elements of one byte, which wgmma reads along k only: so values are turned in shared memory,
// from rows of keys to rows of columns, by warps that have nothing else to do.  Weights become fp8 too, 2^8 times as
// large as they are, so that few fall below its smallest number.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/cuda/attention/ws/shape.h>

namespace tw {

// Config: what attention_rules.h says, and tile_n, warpgroups, stages.
template <class Config> struct AttentionFp8 {
  using T = typename Config::Q;
  using O = typename Config::O;
  static constexpr int W = Config::warpgroups, BM = 64 * W, BN = Config::tile_n, Stages = Config::stages;
  static constexpr int D = Config::head_qk, DV = Config::head_v;
  static constexpr int first = (BN / 32 + 1) / 2 * 32, second = BN - first;  // keys of the parts of a tile
  static constexpr bool Packed = false, Dynamic = false, Split = Config::family == AttentionFamily::split,
                        Paged = Config::pages != AttentionPages::none;
  static constexpr bool Bounded = Config::mask != AttentionMask::none, Sinks = Config::mask == AttentionMask::generic;
  static constexpr bool scored = Config::softcap || Config::bias != AttentionBias::none || Config::masked;
  static constexpr int line = 128;  // elements, and bytes, of a swizzled row
  static constexpr int blocks_d = (D + line - 1) / line, blocks_v = (DV + line - 1) / line,
                       blocks_n = (BN + line - 1) / line;
  static constexpr int q_bytes = blocks_d * BM * line, k_bytes = blocks_d * BN * line, v_bytes = blocks_v * BN * line,
                       turned_bytes = blocks_n * DV * line;
  static constexpr int turners = 3;  // warps
  static constexpr int threads = 128 * (W + 1), together = 1;
  // Of 65536 registers: those who turn take what tiles leave, and have fewer loads under way where that is little.
  static constexpr int held =
      DV / 2 + BN / 2 + BN / 8 + 28 + 24 * (scored + Config::dropout);  // as `registers` of the family says
  static constexpr bool large = held > 200;
  static constexpr int feeding_registers = W == 1   ? 96
                                           : W == 3 ? 56
                                           : large  ? 40
                                                    : 72,
                       multiplying_registers = W == 1   ? 240
                                               : W == 3 ? 152
                                               : large  ? 232
                                                        : 216;
  static constexpr int barriers = 6 * Stages + 2;
  static constexpr int shared_bytes = 1024 + q_bytes + Stages * (k_bytes + v_bytes + turned_bytes) + 8 * barriers;
  static_assert(sizeof(T) == 1 && sizeof(typename Config::KV) == 1, "elements of one byte");
  static_assert(BN % 32 == 0 && BN >= 64 && DV % 32 == 0 && D % 32 == 0, "tile");
  static_assert(W >= 1 && W <= 3, "warpgroups");
  static_assert(registers_suffice(feeding_registers, multiplying_registers, W, together), "registers");
};

}  // namespace tw
