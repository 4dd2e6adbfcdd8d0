// The forward pipeline of gfx950 that turns V while it reads it from LDS.  CK Tile's headers of late 2025 have it.
#pragma once
#include <tilewright/hip/attention/ck_tile/later.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/kernel/fmha_fwd_kernel.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async_trload.hpp>

namespace tw::hip {

template <class Config> struct AttentionDevice<Config, AttentionRoute::forward> {
  using Types = AttentionTypes<Config>;
  using T = typename Config::Element;
  static_assert(Types::bias == ck_tile::BlockAttentionBiasEnum::NO_BIAS && !Config::softcap && !Config::dropout);
  using Traits = ck_tile::TileFmhaTraits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk, Config::pad_head_v,
                                         false, Types::bias, false, Config::lse, false, false, Config::blocks_per_cu>;
  using Problem = ck_tile::BlockFmhaPipelineProblem<T, T, T, float, float, T, uint8_t, float, T, float,
                                                    typename Config::Out, typename Types::Shape, Config::packed,
                                                    typename Types::Variant, typename Types::Mask, true, Traits>;
  using Kernel = ck_tile::FmhaFwdKernel<
      typename Config::template Pipeline<Problem>,
      typename Types::template Store<typename Config::Out, Config::pad_rows, Config::pad_head_v>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    set_operands<Config>(to, x);
    set_results<Config>(to, x);
    set_sequences<Config>(to, x);
    return to;
  }
};

}  // namespace tw::hip
#endif
