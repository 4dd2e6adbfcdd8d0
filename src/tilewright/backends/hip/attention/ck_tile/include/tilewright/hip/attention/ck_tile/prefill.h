// Packed rows of Q over keys and values of a pool of pages, each of one token.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/kernel/fmha_batch_prefill_kernel.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async_default_policy.hpp>
#define block_tile_reduce_sync(...) TW_REDUCE_AFTER_KEYS(__VA_ARGS__)
#include <ck_tile/ops/fmha/pipeline/block_fmha_batch_prefill_pipeline_qr_ks_vs_async.hpp>
#undef block_tile_reduce_sync

namespace tw::hip {

// A window that is reached from the first key.  CK Tile begins with the first tile the window reaches, but reads the
// list of pages from its beginning: what lies before the window must be passed by, hidden.
template <class Mask> struct FromFirstKey : Mask {
  using Mask::Mask;
  template <int rows, int keys>
  CK_TILE_HOST_DEVICE constexpr auto GetTileRangeAlongX(int row, ck_tile::number<rows> of_rows,
                                                        ck_tile::number<keys> of_keys) const {
    return ck_tile::make_tuple(0, Mask::GetTileRangeAlongX(row, of_rows, of_keys).at(ck_tile::number<1>{}));
  }
};

template <class Config> struct AttentionDevice<Config, AttentionRoute::prefill> {
  using Types = AttentionTypes<Config>;
  using T = typename Config::Element;
  using Traits =
      ck_tile::TileFmhaTraits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk, Config::pad_head_v,
                              Config::softcap, Types::bias, false, Config::lse, false, false, Config::blocks_per_cu>;
  using Problem =
      ck_tile::BlockFmhaPipelineProblem<T, T, T, float, float, T, uint8_t, float, T, float, typename Config::Out,
                                        typename Types::Shape, true, typename Types::Variant,
                                        FromFirstKey<typename Types::Mask>, Traits>;
  using Kernel = ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<
      typename Config::template Pipeline<Problem>,
      typename Types::template Store<typename Config::Out, Config::pad_rows, Config::pad_head_v>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    set_operands<Config>(to, x);
    set_results<Config>(to, x);
    to.num_total_pages = x.page_count, to.kv_indptr = x.page_starts, to.kv_page_indices = x.pages;
    to.seqstart_q_ptr = x.starts_q;
    to.batch_stride_k = x.k_steps.batch, to.batch_stride_v = x.v_steps.batch;
    return to;
  }
};

}  // namespace tw::hip
#endif
