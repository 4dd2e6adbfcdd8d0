// A Config to CK Tile's dot_do_o and convert_dq of mid-2025, and a launch to their arguments.
//
// Only the device's pass sees CK Tile.  A block has one sequence: packed rows, lengths and prepared rows are pointers
// moved there, and CK Tile's kernel knows of one sequence alone.
#pragma once
#include <tilewright/hip/attention_backward/ck_rows/launch.h>

#if defined(__HIP_DEVICE_COMPILE__)
#ifndef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0  // to nearest even; the headers' own choice cuts the digits off
#endif
#define CK_TILE_FMHA_FWD_FAST_EXP2 1
#pragma clang diagnostic push  // what newer compilers find out of date in it nobody here can mend
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
#include <ck_tile/ops/fmha/pipeline/block_fmha_bwd_convert_dq.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_bwd_dot_do_o.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_bwd_pipeline_problem.hpp>
#include <ck_tile/ops/fmha/pipeline/tile_fmha_traits.hpp>
#pragma clang diagnostic pop

namespace tw::hip {

template <class Config> struct CkDotDevice {
  using T = typename Config::Element;
  using Traits = ck_tile::TileFmhaBwdOGradDotOTraits<Config::pad_rows, Config::pad_head>;
  using Problem = ck_tile::BlockFmhaBwdOGradDotOPipelineProblem<T, T, float, 64, Config::head_v, false, Traits>;
  using Kernel = ck_tile::FmhaBwdOGradDotOKernel<ck_tile::BlockFmhaBwdOGradDotO<Problem>>;

  static __device__ void run(const tw_attention_backward_dot_args &x) {
    const int64_t head = blockIdx.y, first = int64_t(blockIdx.x) * 64;
    AttentionSequence s{int64_t(blockIdx.z), 0, 0, 0, 0};
    rows_of(x, s);
    if (first >= prepared_end(s.rows)) return;
    const int64_t prepared = prepared_at(x, s.index, head);
    if (first < s.rows) {
      typename Kernel::Kargs to{};
      to.o_ptr = static_cast<const T *>(x.out) + s.index * x.out_strides.batch + s.first_row * x.out_strides.row;
      to.do_ptr = static_cast<const T *>(x.dout) + s.index * x.dout_strides.batch + s.first_row * x.dout_strides.row;
      to.d_ptr = static_cast<float *>(x.delta) + prepared_at(x, s.index, 0);
      to.p_undrop = 1.0f;  // `grad` multiplies by what dropout keeps
      to.seqlen_q = int(s.rows), to.hdim_v = int(x.head_v);
      to.stride_o = int(x.out_strides.row), to.nhead_stride_o = int(x.out_strides.head);
      to.stride_do = int(x.dout_strides.row), to.nhead_stride_do = int(x.dout_strides.head);
      to.nhead_stride_d = int(x.prepared_head);
      Kernel{}(to);
    }
    __threadfence_block();
    __syncthreads();
    finish(x, s, head, first + threadIdx.x, prepared);
  }

 private:
  // A row a lane: dlse, lse in powers of two, and rows behind the last.
  static __device__ void finish(const tw_attention_backward_dot_args &x, const AttentionSequence &s, int64_t head,
                                int64_t row, int64_t prepared) {
    float *delta = static_cast<float *>(x.delta) + prepared + row;
    float lse = INFINITY, sum = 0.0f;
    if (row < s.rows) {
      const float given =
          static_cast<const float *>(x.lse)[s.index * x.lse_batch + head * x.lse_head + s.first_row + row];
      lse = given == -INFINITY ? INFINITY : given * 1.44269504f;
      sum = *delta;
      if constexpr (Config::dlse)
        sum -= static_cast<const float *>(x.dlse)[s.index * x.dlse_batch + head * x.dlse_head + s.first_row + row];
      if (given == -INFINITY) sum = 0.0f;  // NaN in dlse of a row without keys goes nowhere
    }
    *delta = sum;
    static_cast<float *>(x.lse_log2)[prepared + row] = lse;
  }
};

// The launch that a block of convert_dq runs under: the only argument of its kernel.
__device__ inline const CkConvertLaunch &ck_convert_here() {
  return *(const CkConvertLaunch *)__builtin_amdgcn_kernarg_segment_ptr();
}

// CK Tile's conversion with a factor: its own has none, as its accumulators are scaled before they are added.
template <class Problem> struct CkScaledConvert : ck_tile::BlockFmhaBwdConvertQGrad<Problem> {
  using Policy = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;
  using Result = typename Problem::QGradDataType;

  template <class From, class To> __device__ void operator()(const From &from, To &to) const {
    auto window =
        ck_tile::make_tile_window(from.get_bottom_tensor_view(), from.get_window_lengths(), from.get_window_origin(),
                                  Policy::template MakePostQGradDramTileDistribution<Problem>());
    auto accum = ck_tile::load_tile(window);
    scale(accum);
    ck_tile::store_tile(to, ck_tile::cast_tile<Result>(accum));
  }
  template <class From, class To> __device__ void operator()(const From &from, To &to, ck_tile::index_t parts) const {
    auto window =
        ck_tile::make_tile_window(from.get_bottom_tensor_view(), from.get_window_lengths(), from.get_window_origin(),
                                  Policy::template MakePostQGradAccDramTileDistribution<Problem>());
    auto accum = ck_tile::load_tile(window);
    for (ck_tile::index_t part = 1; part < parts; ++part) {
      ck_tile::move_tile_window(window, {1, 0, 0});
      const auto more = ck_tile::load_tile(window);
      ck_tile::tile_elementwise_inout([](auto &sum, const auto &each) { sum += each; }, accum, more);
    }
    scale(accum);
    // The same elements of each lane, without the axis of splits.
    auto results =
        ck_tile::make_static_distributed_tensor<Result>(Policy::template MakePostQGradDramTileDistribution<Problem>());
    const auto rounded = ck_tile::cast_tile<Result>(accum);
    results.get_thread_buffer() = rounded.get_thread_buffer();
    ck_tile::store_tile(to, results);
  }

 private:
  template <class Tile> static __device__ void scale(Tile &accum) {
    const float factor = ck_convert_here().factor;
    ck_tile::tile_elementwise_inout([factor](auto &each) { each = each * factor; }, accum);
  }
};

template <class Config> struct CkConvertDevice {
  using T = typename Config::Element;
  static constexpr int keys_of_slice = 128;
  using Traits = ck_tile::TileFmhaBwdConvertQGradTraits<Config::pad_rows, Config::pad_head>;
  using Problem =
      ck_tile::BlockFmhaBwdConvertQGradPipelineProblem<float, T, Config::threads, 64, keys_of_slice, Config::head_qk,
                                                       false, Config::deterministic, Traits>;
  using Kernel = ck_tile::FmhaBwdConvertQGradKernel<CkScaledConvert<Problem>>;

  static __device__ void run(const CkConvertLaunch &l) {
    const tw_attention_backward_sums &x = l.x;
    const int64_t sequence = blockIdx.z;
    typename Kernel::Kargs to{};
    to.dq_acc_ptr = static_cast<const float *>(x.source) + sequence * x.source_strides.batch;
    to.dq_ptr = static_cast<T *>(x.to) + sequence * x.to_strides.batch;
    to.seqlen_q = int(l.rows), to.hdim_q = int(l.head), to.seqlen_k = int(x.parts) * keys_of_slice;
    to.stride_dq = int(x.to_strides.row), to.nhead_stride_dq = int(x.to_strides.head);
    to.stride_dq_acc = int(x.source_strides.row);
    to.nhead_stride_dq_acc = int(x.parts * x.source_strides.head);
    if constexpr (Config::deterministic) to.split_stride_dq_acc = int(x.source_strides.head);
    Kernel{}(to);
  }
};

}  // namespace tw::hip
#endif
