// The pipeline that orders its loads and multiplications itself.
#pragma once
#include <tilewright/hip/attention_backward/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/pipeline/block_fmha_bwd_dq_dk_dv_pipeline_kr_ktr_vr_iglp.hpp>

namespace tw::hip {

// Behind its loop the last tile of rows writes ds over that of the tile before, which waves that are behind still read:
// CK Tile has no barrier between.  ds is transposed between the two, and here that begins with one.  So is a tile of bias,
// which lies where ds does, before it is written: that begins with one too.
struct BackwardIglpPolicy : ck_tile::BlockFmhaBwdPipelineDefaultPolicy {
  using Base = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;
  template <class Problem, class Transposed, class Given>
  static __device__ void SGradTFromGemm2CToGemm3A(Transposed &transposed, const Given &given) {
    ck_tile::block_sync_lds();
    Base::template SGradTFromGemm2CToGemm3A<Problem, Transposed, Given>(transposed, given);
  }
  template <class Problem> static __device__ auto MakeShuffledBiasTileDistribution() {
    ck_tile::block_sync_lds();
    return Base::template MakeShuffledBiasTileDistribution<Problem>();
  }
};
template <class Problem> using BackwardIglp =
    ck_tile::BlockFmhaBwdDQDKDVPipelineKRKTRVRIGLP<Problem, BackwardIglpPolicy>;

}  // namespace tw::hip
#endif
