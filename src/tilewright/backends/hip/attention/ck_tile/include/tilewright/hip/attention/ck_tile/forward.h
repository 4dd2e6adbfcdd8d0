// Forward attention by CK Tile: all keys of a row of Q in one block.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <tilewright/hip/attention/ck_tile/fp8.h>

namespace tw::hip {

template <class Config> struct AttentionDevice<Config, AttentionRoute::forward> {
  using Types = AttentionTypes<Config>;
  using T = typename Config::Element;
  using Traits = ck_tile::TileFmhaTraits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk, Config::pad_head_v,
                                         Config::softcap, Types::bias, false, Config::lse, Config::dropout,
                                         sizeof(T) == 1, Config::blocks_per_cu>;
  using Problem = ck_tile::BlockFmhaPipelineProblem<T, T, T, float, float, T, uint8_t, float, T, float,
                                                    typename Config::Out, typename Types::Shape, Config::packed,
                                                    typename Types::Variant, typename Types::Mask, Traits>;
  using Kernel = ck_tile::FmhaFwdKernel<
      typename Config::template Pipeline<Problem>,
      typename Types::template Store<typename Config::Out, Config::pad_rows, Config::pad_head_v>>;

  static __device__ auto arguments(const AttentionLaunch &x) {
    typename Kernel::Kargs to{};
    set_operands<Config>(to, x);
    set_results<Config>(to, x);
    if constexpr (Config::dropout) set_dropout(to, x);
    if constexpr (sizeof(T) == 1) set_scales<Config>(to, x);
    set_sequences<Config>(to, x);
    return to;
  }
};

}  // namespace tw::hip
#endif
