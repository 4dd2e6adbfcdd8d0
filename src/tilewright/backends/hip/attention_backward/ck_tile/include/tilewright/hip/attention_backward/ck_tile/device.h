// A Config to CK Tile's kernel of dq, dk and dv of mid-2025, and a BackwardLaunch to its arguments.
//
// Only the device's pass sees CK Tile.  Its arguments are put together by each block: a block has one sequence, so that
// packed rows, lengths and prepared rows are pointers moved there, and CK Tile's kernel knows of one sequence alone.
#pragma once
#include <tilewright/hip/attention_backward/ck_tile/launch.h>

#if defined(__HIP_DEVICE_COMPILE__)
#ifndef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0  // to nearest even; the headers' own choice cuts the digits off
#endif
#define CK_TILE_FMHA_FWD_FAST_EXP2 1  // powers of two: one instruction
#pragma clang diagnostic push         // what newer compilers find out of date in it nobody here can mend
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wdeprecated-attributes"
#pragma clang diagnostic ignored "-Wlogical-op-parentheses"
#include <tilewright/hip/ck_tile_resources.h>
#include <ck_tile/ops/common.hpp>
#include <ck_tile/ops/fmha/block/block_attention_bias_enum.hpp>
#include <ck_tile/ops/fmha/block/block_dropout.hpp>
#include <ck_tile/ops/fmha/block/block_masking.hpp>
#include <ck_tile/ops/fmha/block/block_position_encoding.hpp>
#include <ck_tile/ops/fmha/kernel/fmha_bwd_kernel.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_bwd_pipeline_problem.hpp>
#include <ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp>
#include <ck_tile/ops/fmha/pipeline/tile_fmha_traits.hpp>
#pragma clang diagnostic pop
#include <tilewright/hip/attention_backward/ck_tile/dropout.h>

namespace tw::hip {

template <int... n> using BackwardNumbers = ck_tile::sequence<n...>;

// The launch that a block runs under: the only argument of its kernel.
__device__ inline const BackwardLaunch &backward_launch_here() {
  return *(const BackwardLaunch *)__builtin_amdgcn_kernarg_segment_ptr();
}

// Results are scaled where they are written: accumulators are not, and CK Tile has one factor for dq and dk.
template <class Out, bool scaled> struct BackwardStore {
  static constexpr __host__ __device__ ck_tile::index_t GetSmemSize() { return 0; }
  template <class Window, class Tile> __device__ void operator()(Window &window, const Tile &accum) const {
    Tile results = accum;
    if constexpr (scaled) {
      const float factor = backward_launch_here().dk_factor;
      ck_tile::tile_elementwise_inout([factor](auto &each) { each = each * factor; }, results);
    }
    ck_tile::store_tile(window, ck_tile::cast_tile<Out>(results));
  }
};

template <class Config> struct AttentionBackwardDevice {
  using T = typename Config::Element;
  using C = Config;
  using Out = std::conditional_t<backward_all_accum<Config>, float, T>;
  using Grid0 = BackwardNumbers<C::warp_grid_m0, C::warp_grid_n0, C::warp_grid_k0>;
  using Grid1 = BackwardNumbers<C::warp_grid_m1, C::warp_grid_n1, C::warp_grid_k1>;
  using Grid2 = BackwardNumbers<C::warp_grid_m2, C::warp_grid_n2, C::warp_grid_k2>;
  using Warp0 = BackwardNumbers<C::warp_tile_m0, C::warp_tile_n0, C::warp_tile_k0>;
  using Warp1 = BackwardNumbers<C::warp_tile_m1, C::warp_tile_n1, C::warp_tile_k1>;
  static constexpr int last_k = C::warp_tile_k0 < C::tile_k4 ? C::warp_tile_k0 : C::tile_k4;
  using Warp2 = BackwardNumbers<C::warp_tile_m0, C::warp_tile_n0, last_k>;
  using Shape = ck_tile::TileFmhaBwdShape<BackwardNumbers<C::tile_m0, C::tile_n0, C::tile_k0, C::tile_k1, C::tile_k2,
                                                          C::tile_k3, C::tile_k4, C::tile_head_qk, C::tile_head_v>,
                                          Grid0, Warp0, Grid1, Warp1, Grid0, Warp0, Grid1, Warp1, Grid2, Warp2>;
  static constexpr auto bias = Config::bias == AttentionBias::none ? ck_tile::BlockAttentionBiasEnum::NO_BIAS
                               : Config::bias == AttentionBias::alibi
                                   ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                   : ck_tile::BlockAttentionBiasEnum::ELEMENTWISE_BIAS;
  using Traits = ck_tile::TileFmhaTraits<true, true, C::pad_head_qk, C::pad_head_v, false, bias, false, false, false,
                                         false, C::blocks_per_cu>;
  using Mask = ck_tile::SimplifiedGenericAttentionMask<backward_windowed<Config>>;
  using Drops =
      std::conditional_t<Config::dropout, StatedDropoutBackward, ck_tile::BlockDropoutBwd<false, true, false>>;
  using Problem = ck_tile::BlockFmhaBwdPipelineProblem<T, T, T, T, float, float, float, T, uint8_t, T, T, float, Out,
                                                       Out, T, Shape, false, C::deterministic, Mask, Drops, Traits>;
  using Kernel =
      ck_tile::FmhaBwdDQDKDVKernel<typename Config::template Pipeline<Problem>,
                                   BackwardStore<Out, !backward_all_accum<Config>>, BackwardStore<Out, false>>;

  static __device__ void run(const BackwardLaunch &x) {
    const tw_attention_backward_args &a = x.x;
    const AttentionSequence s = sequence_in_rows(a, int64_t(blockIdx.z));
    if (s.rows <= 0 || int64_t(blockIdx.x) * C::tile_n0 >= s.keys) return;
    typename Kernel::Kargs to{};
    set_operands(to, x, s);
    set_results(to, x, s);
    set_features(to, x, s);
    Kernel{}(to);
  }

 private:
  using Kargs = typename Kernel::Kargs;
  // Where the rows of a sequence begin.
  template <class E>
  static __device__ E *rows_at(E *at, const tw_attention_strides &steps, int64_t sequence, int64_t first, bool packed) {
    return at + (packed ? 0 : sequence * steps.batch) + first * steps.row;
  }
  static __device__ void set_operands(Kargs &to, const BackwardLaunch &x, const AttentionSequence &s) {
    const tw_attention_backward_args &a = x.x;
    const bool rows = a.starts_q != nullptr, keys = a.starts_k != nullptr;
    to.q_ptr = rows_at(static_cast<const T *>(a.q), a.q_strides, s.index, s.first_row, rows);
    to.do_ptr = rows_at(static_cast<const T *>(a.dout), a.dout_strides, s.index, s.first_row, rows);
    to.k_ptr = rows_at(static_cast<const T *>(a.k), a.k_strides, s.index, s.first_key, keys);
    to.v_ptr = rows_at(static_cast<const T *>(a.v), a.v_strides, s.index, s.first_key, keys);
    to.stride_q = int(a.q_strides.row), to.nhead_stride_q = int(a.q_strides.head);
    to.stride_do = int(a.dout_strides.row), to.nhead_stride_do = int(a.dout_strides.head);
    to.stride_k = int(a.k_strides.row), to.nhead_stride_k = int(a.k_strides.head);
    to.stride_v = int(a.v_strides.row), to.nhead_stride_v = int(a.v_strides.head);
    const int64_t prepared = prepared_at(a, s.index, 0);
    to.lse_ptr = x.lse + prepared, to.d_ptr = x.delta + prepared, to.nhead_stride_lsed = int(a.prepared_head);
    to.seqlen_q = int(s.rows), to.seqlen_k = int(s.keys);
    // Where heads are whole, they are the tile's: constants, since scalar registers are few.
    to.hdim_q = C::pad_head_qk ? int(a.head_qk) : C::tile_head_qk,
    to.hdim_v = C::pad_head_v ? int(a.head_v) : C::tile_head_v;
    to.num_head_q = int(a.heads_q), to.nhead_ratio_qk = int(a.heads_q / a.heads_kv);
    to.raw_scale = 1.0f, to.scale = x.scale;
  }
  static __device__ void set_results(Kargs &to, const BackwardLaunch &x, const AttentionSequence &s) {
    const tw_attention_backward_args &a = x.x;
    const bool rows = a.starts_q != nullptr, keys = a.starts_k != nullptr;
    to.dq_acc_ptr = rows_at(x.dq, a.dq_strides, s.index, prepared_first(a.starts_q, s.index), rows);
    to.stride_dq_acc = int(a.dq_strides.row), to.nhead_stride_dq_acc = int(a.dq_strides.head);
    const int64_t first = backward_all_accum<Config> ? prepared_first(a.starts_k, s.index) : s.first_key;
    to.dk_ptr = rows_at(static_cast<Out *>(a.dk), a.dk_strides, s.index, first, keys);
    to.dv_ptr = rows_at(static_cast<Out *>(a.dv), a.dv_strides, s.index, first, keys);
    to.stride_dk = int(a.dk_strides.row), to.nhead_stride_dk = int(a.dk_strides.head);
    to.stride_dv = int(a.dv_strides.row), to.nhead_stride_dv = int(a.dv_strides.head);
    if constexpr (Config::deterministic) to.split_stride_dq_acc = int(x.dq_slice);
  }
  static __device__ void set_features(Kargs &to, const BackwardLaunch &x, const AttentionSequence &s) {
    const tw_attention_backward_args &a = x.x;
    if constexpr (Config::bias == AttentionBias::tensor) {
      to.bias_ptr = static_cast<const T *>(a.bias) + s.index * a.bias_strides[0];
      to.stride_bias = int(a.bias_strides[2]), to.nhead_stride_bias = int(a.bias_strides[1]);
    } else if constexpr (Config::bias == AttentionBias::alibi) {
      // CK Tile goes on by the head's number.
      const int64_t head = int64_t(blockIdx.y);
      to.alibi_slope_ptr = static_cast<const float *>(a.alibi) + s.index * a.alibi_batch + head * a.alibi_head - head;
    }
    if constexpr (backward_windowed<Config>) {
      constexpr int64_t unbounded = 1 << 30;
      const auto bound = [&](int64_t window) { return window > unbounded ? unbounded : window; };
      to.window_size_left = int(bound(a.window_left)), to.window_size_right = int(bound(a.window_right));
      // Of a causal window CK Tile leaves out what is alike along a row, which lse has.
      if (Config::bias == AttentionBias::alibi && a.window_left < 0) to.window_size_left = int(s.rows + s.keys);
      to.mask_type = a.bottom_right ? ck_tile::GenericAttentionMaskEnum::MASK_FROM_BOTTOM_RIGHT
                                    : ck_tile::GenericAttentionMaskEnum::MASK_FROM_TOP_LEFT;
    }
    if constexpr (Config::dropout) {
      const Dropout stated = dropout_of(a);
      to.rp_undrop = to.scale_rp_undrop = stated.keep;
      to.drop_seed.val = uint64_t(stated.seed_high) << 32 | stated.seed_low, to.drop_offset.val = stated.offset_low;
      to.is_drop_seed_offset_from_host = true;
    }
  }
};

}  // namespace tw::hip
#endif
