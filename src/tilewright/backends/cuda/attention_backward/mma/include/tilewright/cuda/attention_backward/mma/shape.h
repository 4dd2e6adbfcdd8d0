// The numbers of the mma pipeline of attention's gradients, for the host that launches and the device that runs.
//
// Two passes, which add nothing up over blocks.  A block owns a tile, and meets tiles of the other side one after another,
// which come by cp.async: in the first pass it owns keys and values and meets rows and their gradients, for dk and dv; in
// the second it owns rows and meets keys, for dq.  What is owned lies along rows of the products: a warp has 16 lines of
// it.  Where heads are so large that a warp cannot hold their accumulators, several share these lines: each scores lines of its
// own that are met, and adds up columns of its own.
#pragma once
#include <tilewright/cuda/attention_backward/entries.h>

namespace tw {

struct AttentionBackwardMmaArgs : BackwardCall {
  int row_tiles, key_tiles;            // that are owned, of the longest sequence
  int wide_q, wide_k, wide_v, wide_o;  // addresses and strides are whole 16 bytes
};

// Config: what attention_backward_rules.h says, and tile (lines that are met), warps (along lines that are owned),
// warps_n (warps that have the same lines).
template <class Config> struct AttentionBackwardMma {
  using T = typename Config::T;
  static constexpr int WO = Config::warps_m, WC = Config::warps_n, own = 16 * WO, met = Config::tile, part = met / WC;
  static constexpr int D = Config::head_qk, DV = Config::head_v, columns = D / WC, columns_v = DV / WC;
  static constexpr bool Bounded = Config::mask != AttentionMask::none, Sinks = Config::mask == AttentionMask::generic;
  static constexpr int threads = 32 * WO * WC, stages = 2;
  // From line to line of shared memory: an odd number of 16 bytes, so that eight lines are in different banks.
  template <int Elements> static constexpr int pitch = Elements / 8 % 2 ? Elements * 2 : Elements * 2 + 16;
  static constexpr int d_pitch = pitch<D>, v_pitch = pitch<DV>, p_pitch = pitch<met>;
  static constexpr int own_bytes = own * (d_pitch + v_pitch), met_bytes = met * (d_pitch + v_pitch);
  static constexpr int weights_bytes = WC > 1 ? own * p_pitch : 0;  // of weights, and of gradients
  static constexpr int number_bytes = 2 * met * 4;
  static constexpr int shared_bytes = own_bytes + stages * (met_bytes + number_bytes) + 2 * weights_bytes;
  static_assert(sizeof(T) == 2, "elements of two bytes");
  static_assert(met % 16 == 0 && part % 8 == 0 && (WC > 1 || part % 16 == 0), "tile");
  static_assert(D % 32 == 0 && DV % 32 == 0 && columns % 16 == 0 && columns_v % 16 == 0, "heads");
};

}  // namespace tw
