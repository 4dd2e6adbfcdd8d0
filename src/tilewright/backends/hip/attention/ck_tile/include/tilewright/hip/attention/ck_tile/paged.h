// Forward attention by CK Tile with keys and values in pages of a table.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/block/page_block_navigator.hpp>
#include <ck_tile/ops/fmha/kernel/fmha_fwd_pagedkv_kernel.hpp>

namespace tw::hip {

template <class Config> struct AttentionDevice<Config, AttentionRoute::paged> {
  using Types = AttentionTypes<Config>;
  using T = typename Config::Element;
  using Traits = ck_tile::TileFmhaFwdPagedKVTraits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk,
                                                   Config::pad_head_v, Config::softcap, Types::bias, false, Config::lse,
                                                   true, false, Config::blocks_per_cu>;
  using Problem =
      ck_tile::BlockFmhaFwdPagedKVPipelineProblem<T, T, T, float, float, T, float, T, float, typename Config::Out,
                                                  typename Types::Shape, Config::packed, typename Types::Variant,
                                                  typename Types::Mask, Traits>;
  using Kernel = ck_tile::FmhaFwdPagedKVKernel<
      typename Config::template Pipeline<Problem>,
      typename Types::template Store<typename Config::Out, Config::pad_rows, Config::pad_head_v>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    set_operands<Config>(to, x);
    set_results<Config>(to, x);
    set_pages(to, x);
    to.batch_stride_k = x.k_steps.batch, to.batch_stride_v = x.v_steps.batch;
    to.seqlen_k_ptr = x.lengths_k;
    if constexpr (Config::packed) to.seqstart_q_ptr = x.starts_q, to.seqstart_k_ptr = x.starts_k;
    else to.batch_stride_q = x.q_steps.batch, to.batch_stride_o = x.o_steps.batch;
    return to;
  }
};

}  // namespace tw::hip
#endif
