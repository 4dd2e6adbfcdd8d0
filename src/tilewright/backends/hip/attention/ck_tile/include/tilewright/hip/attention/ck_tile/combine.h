// The splits of the keys combined: weighted by what their LSE says, and rounded once.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/kernel/fmha_fwd_splitkv_combine_kernel.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp>
#include <ck_tile/ops/reduce/block/block_reduce.hpp>
// Every wave reads the LSE of all splits from LDS, then writes the splits' weights over them: CK Tile has no barrier between,
// so a wave that is ahead spoils what others still read.  Reductions lie between the two; here each begins with one.
#define block_tile_reduce_sync(...) (ck_tile::block_sync_lds(), ck_tile::block_tile_reduce_sync(__VA_ARGS__))
#include <ck_tile/ops/fmha/pipeline/block_fmha_fwd_splitkv_combine_pipeline.hpp>
#undef block_tile_reduce_sync

namespace tw::hip {

// Where the LSE of splits lie in LDS.  CK Tile's own rows are as far apart as a block has rows of the result, and one more:
// with more than nine splits they lie over each other.
struct CombinePolicy : ck_tile::BlockFmhaFwdSplitKVCombinePipelineDefaultPolicy {
  using Base = ck_tile::BlockFmhaFwdSplitKVCombinePipelineDefaultPolicy;
  template <class Problem> static constexpr int apart = Problem::kM0 + 1;

  // Of a split and a row.
  template <class Problem> static __host__ __device__ constexpr auto MakeLSEaccLdsStoreBlockDescriptor() {
    using ck_tile::number;
    return ck_tile::make_naive_tensor_descriptor(
        ck_tile::make_tuple(number<Problem::kMaxSplits>{}, number<Problem::kM0>{}),
        ck_tile::make_tuple(number<apart<Problem>>{}, number<1>{}), number<1>{}, number<1>{});
  }
  // Of a row and a split.
  template <class Problem> static __host__ __device__ constexpr auto MakeLSEaccLdsBlockDescriptor() {
    using ck_tile::number;
    return ck_tile::make_naive_tensor_descriptor(
        ck_tile::make_tuple(number<Problem::kM0>{}, number<Problem::kMaxSplits>{}),
        ck_tile::make_tuple(number<1>{}, number<apart<Problem>>{}), number<1>{}, number<1>{});
  }
  // In whole accesses: the splits' accumulators lie behind.
  template <class Problem> static __host__ __device__ constexpr ck_tile::index_t GetSmemSizeLSEacc() {
    return (Problem::kMaxSplits * apart<Problem> * 4 + 15) / 16 * 16;
  }
  template <class Problem> static __host__ __device__ constexpr ck_tile::index_t GetSmemSize() {
    return GetSmemSizeLSEacc<Problem>() + Base::template GetSmemSizeOacc4<Problem>();
  }
};

template <class Config> struct AttentionDevice<Config, AttentionRoute::combine> {
  using Types = AttentionTypes<Config>;
  using Traits = ck_tile::TileFmhaFwdSplitKVCombineTraits<Config::pad_rows, Config::pad_head_v, Config::lse, false,
                                                          Config::log_splits, Config::blocks_per_cu>;
  using Problem = ck_tile::BlockFmhaSplitKVCombinePipelineProblem<float, float, typename Config::Out, Config::head_v,
                                                                  Config::packed, Config::tile_n1, Traits>;
  using Kernel = ck_tile::FmhaFwdSplitKVCombineKernel<
      ck_tile::BlockFmhaFwdSplitKVCombinePipeline<Problem, CombinePolicy>,
      typename Types::template Store<typename Config::Out, Config::pad_rows, Config::pad_head_v>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    to.o_acc_ptr = x.parts, to.lse_acc_ptr = x.parts_lse, to.o_ptr = x.o;
    to.batch = x.batch, to.seqlen_q = x.rows, to.hdim_v = x.head_v, to.num_splits = x.splits;
    to.row_stride_o_acc = x.parts_steps.row, to.nhead_stride_o_acc = x.parts_steps.head;
    to.nhead_stride_lse_acc = x.parts_lse_steps.head;
    to.split_stride_o_acc = x.parts_split, to.split_stride_lse_acc = x.parts_lse_split;
    to.row_stride_o = x.o_steps.row, to.nhead_stride_o = x.o_steps.head;
    if constexpr (Config::lse) {
      to.lse_ptr = x.lse, to.nhead_stride_lse = x.lse_steps.head, to.batch_stride_lse = x.lse_steps.batch;
    }
    if constexpr (Config::packed) {
      to.seqstart_q_ptr = x.starts_q;
    } else {
      to.batch_stride_o_acc = x.parts_steps.batch, to.batch_stride_lse_acc = x.parts_lse_steps.batch;
      to.batch_stride_o = x.o_steps.batch;
    }
    return to;
  }
};

}  // namespace tw::hip
#endif
