// The glue to CK Tile of late 2025: pipelines take tuples of windows, and functions that write their result.
#pragma once
#include <tilewright/hip/ck_tile_gemm.h>

#if defined(__HIP_DEVICE_COMPILE__)
#if !__has_include(<ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp>)
#error "these CK Tile headers are older than this kernel is for: generate it with TILEWRIGHT_CK_TILE set to them"
#endif

namespace tw::hip {

template <class Config> struct CkTile {
  struct Same {
    template <class Y, class X> CK_TILE_DEVICE constexpr void operator()(Y &y, const X &x) const { y = x; }
  };
  template <class Window> static CK_TILE_DEVICE auto operand(const Window &window) {
    return ck_tile::make_tuple(window);
  }
};

}  // namespace tw::hip
#endif
