// The forward pipeline of gfx950 whose two groups of waves take turns at the matrix unit.  CK Tile's headers of late 2025
// have it; of them it needs nothing but what is said here.
#pragma once
#include <tilewright/hip/attention/ck_tile/later.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/kernel/fmha_fwd_v3_kernel.hpp>
#include <ck_tile/ops/fmha/pipeline/block_fmha_fwd_v3_pipeline_default_policy.hpp>

namespace tw::hip {

// Tiles of keys of a block.  From the third on the pipeline loads one ahead and then waits for all waves; its loop counts
// on both.  For two tiles CK Tile has neither, and waves read what others have not loaded: two are treated as more.
struct KeyTiles {
  int count;
  __device__ operator int() const { return count; }
  friend __device__ bool operator<(int few, const KeyTiles &x) { return few < x.count + (few == 2 && x.count == 2); }
};
template <class Keys> __device__ KeyTiles key_tiles(Keys keys, int tile) { return {(int(keys) + tile - 1) / tile}; }

}  // namespace tw::hip

#pragma push_macro("C_LOG2E")
#undef C_LOG2E
#define integer_divide_ceil(...) ::tw::hip::key_tiles(__VA_ARGS__)
#define C_LOG2E (::ck_tile::log2e_v<float> / scale_s)  // of the LSE alone, whose largest score is not scaled there
#include <ck_tile/ops/fmha/pipeline/block_fmha_fwd_v3_pipeline.hpp>
#undef integer_divide_ceil
#pragma pop_macro("C_LOG2E")

namespace tw::hip {

template <class Config> struct AttentionDevice<Config, AttentionRoute::forward> {
  using Types = AttentionTypes<Config>;
  using T = typename Config::Element;
  static_assert(Types::bias == ck_tile::BlockAttentionBiasEnum::NO_BIAS && !Config::softcap && !Config::dropout);
  using Traits = ck_tile::TileFmhaFwdV3Traits<Config::pad_rows, Config::pad_keys, Config::pad_head_qk,
                                              Config::pad_head_v, Config::lse, Config::blocks_per_cu>;
  using Problem =
      ck_tile::BlockFmhaFwdV3PipelineProblem<T, T, T, float, float, float, T, float, typename Config::Out,
                                             typename Types::Shape, Config::packed, typename Types::Mask, Traits>;
  using Kernel = ck_tile::FmhaFwdV3Kernel<
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
