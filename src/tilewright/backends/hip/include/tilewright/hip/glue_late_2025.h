// The glue to CK Tile of late 2025: pipelines take tuples of windows and functions that write their result, views the
// length of k, and the epilogues work out the block's size themselves.
#pragma once
#include <tilewright/hip/ck_tile_gemm.h>

#if defined(__HIP_DEVICE_COMPILE__)
#if !__has_include(<ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp>)
#error \
    "this kernel is for CK Tile of late 2025, and these headers are older: generate it again with TILEWRIGHT_CK_TILE set to them"
#endif

namespace tw::hip {

template <class Config> struct CkTile {
  using Ds = typename Repeated<typename Config::D, Config::num_d>::type;
  using DLayouts = typename Repeated<Rows, Config::num_d>::type;

  using ThroughLds = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
      typename Config::A, typename Config::B, Ds, typename Config::Acc, typename Config::C, DLayouts, Rows,
      Fused<Config::epilogue>, Config::tile_m, Config::tile_n, Config::warp_grid_m, Config::warp_grid_n,
      Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, operation<Config>, Config::wave_groups,
      Config::narrow_c, Config::width_c>>;

  // Not the raw form: that one skips the bounds check along n.
  using FromRegisters = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
      typename Config::A, typename Config::B, Ds, typename Config::Acc, typename Config::C, DLayouts, Rows,
      Fused<Config::epilogue>, Config::tile_m, Config::tile_n, Config::pad_m, Config::pad_n, Config::warp_tile_m,
      Config::warp_tile_n, Config::warp_tile_k, false, false, operation<Config>>>;

  struct Same {
    template <class Y, class X> CK_TILE_DEVICE constexpr void operator()(Y &y, const X &x) const { y = x; }
  };

  template <class Kernel, class A, class B, class D, class E, class Args, class OfK>
  static CK_TILE_DEVICE auto views(const A &a, const B &b, const D &ds, E *e, const Args &args, const OfK &of_k) {
    return Kernel::template MakeGemmTensorViews<operation<Config>>(a, b, ds, e, args, of_k.splitted_k);
  }

  template <class Windows> static CK_TILE_DEVICE const Windows &operand(const Windows &windows) { return windows; }
};

}  // namespace tw::hip
#endif
