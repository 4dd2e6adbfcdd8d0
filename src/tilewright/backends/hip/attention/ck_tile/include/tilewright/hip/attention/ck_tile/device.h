// A Config to CK Tile's attention kernels of mid-2025, and an AttentionLaunch to their arguments.
//
// Only the device's pass sees CK Tile: what its kernels call arguments is put together from an AttentionLaunch where it
// is used, so the host's half needs none of the templates, and none of CK Tile's own launching.
#pragma once
#include <tilewright/hip/attention/ck_tile/launch.h>

#if defined(__HIP_DEVICE_COMPILE__)
#ifndef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0  // to nearest even; the headers' own choice cuts the digits off
#endif
#define CK_TILE_FMHA_FWD_FAST_EXP2 1         // powers of two: one instruction, and what soft caps need
#define CK_TILE_FMHA_FLOAT_TO_FLOAT16_RTN 1  // weights to nearest, not towards zero
#pragma clang diagnostic push                // what newer compilers find out of date in it nobody here can mend
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wdeprecated-attributes"
#pragma clang diagnostic ignored "-Wlogical-op-parentheses"
#include <tilewright/hip/ck_tile_resources.h>
#include <ck_tile/ops/common.hpp>
#include <ck_tile/ops/epilogue/default_2d_epilogue.hpp>
#include <ck_tile/ops/fmha/block/block_attention_bias_enum.hpp>
#include <tilewright/hip/attention/ck_tile/dropout.h>
#include <ck_tile/ops/fmha/block/block_masking.hpp>
#include <ck_tile/ops/fmha/block/block_position_encoding.hpp>
#include <ck_tile/ops/fmha/block/block_rotary_embedding.hpp>
#include <ck_tile/ops/fmha/block/variants.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_pipeline_problem.hpp>
#include <ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp>
#include <ck_tile/ops/fmha/pipeline/tile_fmha_traits.hpp>
#include <ck_tile/ops/reduce/block/block_reduce.hpp>
#pragma clang diagnostic pop

namespace tw::hip {

template <int... n> using Numbers = ck_tile::sequence<n...>;

// What all families that multiply have in common.
template <class Config> struct AttentionTypes {
  using T = typename Config::Element;
  using Shape = ck_tile::TileFmhaShape<
      Numbers<Config::tile_m0, Config::tile_n0, Config::tile_k0, Config::tile_n1, Config::tile_k1, Config::tile_k0max>,
      Numbers<Config::warp_grid_m0, Config::warp_grid_n0, Config::warp_grid_k0>,
      Numbers<Config::warp_tile_m0, Config::warp_tile_n0, Config::warp_tile_k0>,
      Numbers<Config::warp_grid_m1, Config::warp_grid_n1, Config::warp_grid_k1>,
      Numbers<Config::warp_tile_m1, Config::warp_tile_n1, Config::warp_tile_k1>, true>;
  using Mask = ck_tile::SimplifiedGenericAttentionMask<windowed<Config>>;
  using Variant = ck_tile::ComposedAttention<Config::softcap ? ck_tile::LOGITS_SOFT_CAP : 0, true>;
  static constexpr auto bias = Config::bias == AttentionBias::none ? ck_tile::BlockAttentionBiasEnum::NO_BIAS
                               : Config::bias == AttentionBias::alibi
                                   ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                   : ck_tile::BlockAttentionBiasEnum::ELEMENTWISE_BIAS;
  template <class Out, bool rows, bool columns> using Store =
      ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, Out, rows, columns, false>>;
};

// Pipelines that copy K to LDS past the registers have three places there for tiles of K and V.  Where K has 3, 6, 9 or
// some other numbers of iterations, the first tile of V goes where the last of K lies, and waves that are behind still multiply
// by it: CK Tile has no barrier between.  A reduction lies there, and of such kernels begins with one.
template <bool same_place> __device__ void after_keys() {
  if constexpr (same_place) ck_tile::block_sync_lds();
}
#define TW_REDUCE_AFTER_KEYS(...) \
  (tw::hip::after_keys<LdsSeq.at(number<k0_loops - 1>{}) == LdsSeq.at(number<k0_loops>{})>(), \
   ck_tile::block_tile_reduce_sync(__VA_ARGS__))

// Arguments that several families call alike.
template <class Config, class Arguments> __device__ void set_operands(Arguments &to, const AttentionLaunch &x) {
  to.q_ptr = x.q, to.k_ptr = x.k, to.v_ptr = x.v;
  to.seqlen_q = x.rows, to.seqlen_k = x.keys, to.hdim_q = x.head_qk, to.hdim_v = x.head_v;
  to.num_head_q = x.heads, to.nhead_ratio_qk = x.group, to.scale_s = x.scale;
  to.stride_q = x.q_steps.row, to.stride_k = x.k_steps.row, to.stride_v = x.v_steps.row;
  to.nhead_stride_q = x.q_steps.head, to.nhead_stride_k = x.k_steps.head, to.nhead_stride_v = x.v_steps.head;
  if constexpr (Config::bias == AttentionBias::tensor) {
    to.bias_ptr = x.bias, to.stride_bias = x.bias_steps.row, to.nhead_stride_bias = x.bias_steps.head;
    if constexpr (!Config::packed) to.batch_stride_bias = x.bias_steps.batch;
  } else if constexpr (Config::bias == AttentionBias::alibi) {
    to.alibi_slope_ptr = x.bias, to.alibi_slope_stride = x.bias_steps.batch;
  }
  if constexpr (windowed<Config>) {
    to.window_size_left = x.window_left, to.window_size_right = x.window_right;
    to.mask_type = x.top_left ? ck_tile::GenericAttentionMaskEnum::MASK_FROM_TOP_LEFT
                              : ck_tile::GenericAttentionMaskEnum::MASK_FROM_BOTTOM_RIGHT;
  }
  if constexpr (Config::softcap) to.logits_soft_cap = x.softcap, to.logits_soft_cap_rcp = x.softcap_inverse;
}

template <class Config, class Arguments> __device__ void set_results(Arguments &to, const AttentionLaunch &x) {
  to.o_ptr = x.o, to.stride_o = x.o_steps.row, to.nhead_stride_o = x.o_steps.head;
  if constexpr (Config::lse) {
    to.lse_ptr = x.lse, to.nhead_stride_lse = x.lse_steps.head, to.batch_stride_lse = x.lse_steps.batch;
  }
}

// Where sequences begin: in a tensor, or packed one behind the other.
template <class Config, class Arguments> __device__ void set_sequences(Arguments &to, const AttentionLaunch &x) {
  if constexpr (Config::packed) {
    to.seqstart_q_ptr = x.starts_q, to.seqstart_k_ptr = x.starts_k, to.seqlen_k_ptr = x.lengths_k;
  } else {
    to.batch_stride_q = x.q_steps.batch, to.batch_stride_k = x.k_steps.batch;
    to.batch_stride_v = x.v_steps.batch, to.batch_stride_o = x.o_steps.batch;
  }
}

template <class Arguments> __device__ void set_dropout(Arguments &to, const AttentionLaunch &x) {
  to.rp_undrop = x.drop_threshold;  // as StatedDropout reads it
  to.is_drop_seed_offset_from_host = !x.seed_at;
  if (x.seed_at) {
    to.drop_seed.ptr = x.seed_at, to.drop_offset.ptr = x.seed_at + 1;
  } else {
    to.drop_seed.val = x.seed, to.drop_offset.val = x.offset;
  }
}

template <class Arguments> __device__ void set_pages(Arguments &to, const AttentionLaunch &x) {
  to.block_table_ptr = x.pages, to.batch_stride_block_table = x.pages_step, to.page_block_size = x.page_size;
}

}  // namespace tw::hip
#endif
