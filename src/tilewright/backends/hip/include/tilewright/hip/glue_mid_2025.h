// The glue to CK Tile of mid-2025.
#pragma once
#include <tilewright/hip/ck_tile_gemm.h>

#if defined(__HIP_DEVICE_COMPILE__)
#if __has_include(<ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v6.hpp>)
#error "these CK Tile headers are newer than this kernel is for: generate it with TILEWRIGHT_CK_TILE set to them"
#endif
#include <tilewright/hip/ck_tile_fp32.h>
#include <tilewright/hip/ck_tile_mends.h>

namespace tw::hip {

template <class Config> struct CkTile {
  struct Same {
    template <class T> CK_TILE_DEVICE constexpr T operator()(const T &x) const { return x; }
  };
  template <class Window> static CK_TILE_DEVICE const Window &operand(const Window &window) { return window; }
};

}  // namespace tw::hip
#endif
