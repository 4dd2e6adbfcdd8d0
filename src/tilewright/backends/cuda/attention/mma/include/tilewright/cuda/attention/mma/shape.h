// The numbers of the mma pipeline of attention, for the host that launches and the device that runs.
//
// A block works on one item: a tile of query rows of one head and one sequence (and of one split of its keys).  Its warps
// are a grid: those along rows have rows of their own; those along keys share rows, score keys of their own, meet to weigh
// them, and then add up columns of the values of their own.  Keys and values come by cp.async through a ring of slots, 16
// bytes a thread, so that rows may lie anywhere: in pages of any size and layout, with any stride.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/cuda/attention/mma/memory.h>
#include <tilewright/cuda/attention/ws/shape.h>

namespace tw {

// What tensor cores multiply: elements of two bytes.  fp8 becomes fp16, for which there is an instruction; bf16 where
// weights are multiplied by scales of blocks, which may be of any size.
template <class KV, bool Blocks> struct multiplied_type {
  using type = KV;
};
template <> struct multiplied_type<fp8_e4m3, false> {
  using type = fp16;
};
template <> struct multiplied_type<fp8_e4m3, true> {
  using type = bf16;
};
template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

struct AttentionMmaArgs {
  AttentionWsArgs ws;
  Divider by_page;      // slots of a page
  int wide_q, wide_kv;  // addresses and strides are whole 16 bytes
  int wide_o;           // those of results are whole stores of a thread
  int values_in_keys;   // a value is the first elements of its key
};

// Config: what attention_rules.h says, and tile_n, warps_m, warps_n, row_blocks, kv_stages, pack_heads, ctas_per_sm.
template <class Config> struct AttentionMma {
  using Q = typename Config::Q;
  using KV = typename Config::KV;
  using O = typename Config::O;
  using T = typename multiplied_type<KV, Config::scales == AttentionScales::block>::type;
  static constexpr bool scales_rows = is_same<Q, bf16> && is_same<T, fp16>;  // each by a number of its own
  using Kept = typename multiplied_type<KV, scales_rows || Config::scales == AttentionScales::block>::type;
  static_assert(sizeof(Q) == 1 || is_same<Q, Kept>, "queries that would be rounded");
  static constexpr int R = Config::row_blocks, WM = Config::warps_m, WN = Config::warps_n, Slots = Config::kv_stages;
  static constexpr int warp_rows = 16 * R, BM = warp_rows * WM, BN = Config::tile_n, warp_keys = BN / WN;
  static constexpr int D = Config::head_qk, DV = Config::head_v, warp_columns = DV / WN;
  static constexpr bool Packed = Config::pack_heads, Dynamic = false, PackedRows = Config::packed,
                        Split = Config::family == AttentionFamily::split, Paged = Config::pages != AttentionPages::none;
  static constexpr bool Bounded = Config::mask != AttentionMask::none, Sinks = Config::mask == AttentionMask::generic;
  static constexpr bool scored = Config::softcap || Config::bias != AttentionBias::none || Config::masked;
  static constexpr bool narrow = sizeof(KV) == 1;  // fp8: pairs of bytes are spread over two words
  static constexpr bool transposed = Config::pages == AttentionPages::vectorised;  // values come with keys side by side
  static constexpr bool may_share = D > 256 && DV <= D && !transposed;             // the latent of MLA
  static constexpr int threads = 32 * WM * WN, ctas_per_sm = Config::ctas_per_sm;
  static constexpr int size = sizeof(KV), q_pitch = mma_pitch(D * 2), k_pitch = mma_pitch(D * size),
                       p_pitch = mma_pitch(BN * 2), v_pitch = mma_pitch((transposed ? BN : DV) * size);
  static constexpr int q_bytes = mma_row_bytes(BM, D), slot_bytes = mma_slot_bytes(BN, D, DV, size, transposed);
  static constexpr int p_bytes = mma_weight_bytes(BM, BN, WN), sync_bytes = mma_sync_bytes(BM, WN);
  static constexpr int shared_bytes = q_bytes + Slots * slot_bytes + mma_kept_bytes(BM, BN, WN, scales_rows);
  static_assert(sizeof(T) == 2 && (size == 2 || narrow), "elements of one or two bytes");
  static_assert(BN % (narrow ? 32 : 16) == 0 && warp_keys % (WN == 1 || narrow ? 16 : 8) == 0, "keys");
  static_assert(D % 32 == 0 && warp_columns % 16 == 0 && DV % WN == 0 && Slots >= 2, "heads");
};

// The same as one warp has it.
template <class S> struct AttentionMmaWarp : S {
  static constexpr int BN = S::warp_keys;
};

}  // namespace tw
