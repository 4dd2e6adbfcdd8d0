// New keys and values behind those of a cache, keys and rows of Q rotated by their positions on the way.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/block/page_block_navigator.hpp>
#include <ck_tile/ops/fmha/kernel/fmha_fwd_appendkv_kernel.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_fwd_appendkv_pipeline.hpp>

namespace tw::hip {

template <class Config> struct AttentionDevice<Config, AttentionRoute::append> {
  using T = typename Config::Element;
  static constexpr auto rotary = Config::rotary == AttentionRotary::none ? ck_tile::RotaryEmbeddingEnum::NONE
                                 : Config::rotary == AttentionRotary::interleaved
                                     ? ck_tile::RotaryEmbeddingEnum::INTERLEAVED
                                     : ck_tile::RotaryEmbeddingEnum::HALF_ROTATED;
  using Traits = ck_tile::TileFmhaFwdAppendKVTraits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk,
                                                    Config::pad_head_v, Config::blocks_per_cu>;
  using Problem =
      ck_tile::BlockFmhaFwdAppendKVPipelineProblem<T, T, T, Config::tile_m0, Config::tile_n0, Config::tile_k0,
                                                   Config::tile_n1, true, rotary, paged<Config>, Traits>;
  using Kernel = ck_tile::FmhaFwdAppendKVKernel<ck_tile::BlockFmhaFwdAppendKVPipeline<Problem>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    to.q_ptr = const_cast<void *>(x.q), to.k_ptr = const_cast<void *>(x.k), to.v_ptr = const_cast<void *>(x.v);
    to.knew_ptr = x.new_k, to.vnew_ptr = x.new_v, to.seqlen_k_ptr = x.lengths_k;
    to.seqlen_q = x.rows, to.seqlen_knew = x.new_keys, to.hdim_q = x.head_qk, to.hdim_v = x.head_v;
    to.num_head_q = x.heads, to.nhead_ratio_qk = x.group;
    to.stride_q = x.q_steps.row, to.stride_k = x.k_steps.row, to.stride_v = x.v_steps.row;
    to.stride_knew = x.new_k_steps.row, to.stride_vnew = x.new_v_steps.row;
    to.nhead_stride_q = x.q_steps.head, to.nhead_stride_k = x.k_steps.head, to.nhead_stride_v = x.v_steps.head;
    to.nhead_stride_knew = x.new_k_steps.head, to.nhead_stride_vnew = x.new_v_steps.head;
    to.batch_stride_q = x.q_steps.batch, to.batch_stride_k = x.k_steps.batch, to.batch_stride_v = x.v_steps.batch;
    to.batch_stride_knew = x.new_k_steps.batch, to.batch_stride_vnew = x.new_v_steps.batch;
    if constexpr (Config::rotary != AttentionRotary::none) {
      to.rotary_cos_ptr = x.cos, to.rotary_sin_ptr = x.sin;
      to.rotary_dim = x.rotary, to.has_mask = true;
    }
    if constexpr (paged<Config>) set_pages(to, x);
    return to;
  }
};

}  // namespace tw::hip
#endif
