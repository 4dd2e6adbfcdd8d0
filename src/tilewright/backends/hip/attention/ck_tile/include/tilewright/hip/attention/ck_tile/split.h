// Attention with the keys of a row split over blocks: each leaves its split, in fp32, and the split's LSE.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/block/page_block_navigator.hpp>
#include <ck_tile/ops/fmha/kernel/fmha_fwd_splitkv_kernel.hpp>

namespace tw::hip {

template <class Config> struct AttentionDevice<Config, AttentionRoute::split> {
  using Types = AttentionTypes<Config>;
  using T = typename Config::Element;
  // Parts may end anywhere, and their LSE is always left.
  using Traits = ck_tile::TileFmhaFwdSplitKVTraits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk,
                                                   Config::pad_head_v, Config::softcap, Types::bias, false, true, false,
                                                   paged<Config>, true, false, Config::blocks_per_cu>;
  using Problem = ck_tile::BlockFmhaFwdSplitKVPipelineProblem<T, T, T, float, float, T, float, T, float, float,
                                                              typename Types::Shape, Config::packed,
                                                              typename Types::Variant, typename Types::Mask, Traits>;
  using Kernel = ck_tile::FmhaFwdSplitKVKernel<typename Config::template Pipeline<Problem>,
                                               typename Types::template Store<float, false, false>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    set_operands<Config>(to, x);
    to.batch = x.batch, to.num_splits = x.splits;
    to.o_acc_ptr = x.o, to.lse_acc_ptr = x.lse;
    to.stride_o_acc = x.o_steps.row, to.nhead_stride_o_acc = x.o_steps.head;
    to.nhead_stride_lse_acc = x.lse_steps.head;
    to.split_stride_o_acc = x.o_split, to.split_stride_lse_acc = x.lse_split;
    to.batch_stride_k = x.k_steps.batch, to.batch_stride_v = x.v_steps.batch;
    to.seqlen_k_ptr = x.lengths_k;
    if constexpr (Config::packed) {
      to.seqstart_q_ptr = x.starts_q, to.seqstart_k_ptr = x.starts_k;
    } else {
      to.batch_stride_q = x.q_steps.batch;
      to.batch_stride_o_acc = x.o_steps.batch, to.batch_stride_lse_acc = x.lse_steps.batch;
    }
    if constexpr (paged<Config>) set_pages(to, x);
    return to;
  }
};

}  // namespace tw::hip
#endif
