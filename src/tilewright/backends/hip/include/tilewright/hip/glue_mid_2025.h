// The glue to CK Tile of mid-2025.
#pragma once
#include <tilewright/hip/ck_tile_gemm.h>

#if defined(__HIP_DEVICE_COMPILE__)
#if __has_include(<ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp>)
#error \
    "this kernel is for CK Tile of mid-2025, and these headers are newer: generate it again with TILEWRIGHT_CK_TILE set to them"
#endif

namespace tw::hip {

template <class Config> struct CkTile {
  using ThroughLds = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
      typename Config::A, typename Config::B, typename Repeated<typename Config::D, Config::num_d>::type,
      typename Config::Acc, typename Config::C, typename Repeated<Rows, Config::num_d>::type, Rows,
      Fused<Config::epilogue>, Config::threads, Config::tile_m, Config::tile_n, Config::warp_grid_m,
      Config::warp_grid_n, Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, operation<Config>,
      Config::wave_groups, Config::narrow_c, Config::width_c>>;

  // Not the raw form: that one skips the bounds check along n.
  using FromRegisters = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
      typename Config::A, typename Config::B, typename Config::Acc, typename Config::C, Rows, Config::pad_m,
      Config::pad_n, Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, false, operation<Config>>>;

  struct Same {
    template <class T> CK_TILE_DEVICE constexpr T operator()(const T &x) const { return x; }
  };

  template <class Kernel, class A, class B, class Ds, class E, class Args, class OfK>
  static CK_TILE_DEVICE auto views(const A &a, const B &b, const Ds &ds, E *e, const Args &args, const OfK &of_k) {
    return Kernel::template MakeGemmTensorViews<operation<Config>>(a, b, ds, e, args, of_k);
  }

  template <class Windows> static CK_TILE_DEVICE auto operand(const Windows &windows) {
    return windows[ck_tile::number<0>{}];
  }
};

}  // namespace tw::hip
#endif
