// Forward attention of fp8: CK Tile's kernel with scales by tensor or head, and results that are not held to fp8's range.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/core.hpp>
#include <tilewright/hip/ck_tile_mends.h>  // V's bytes are transposed on their way to LDS

namespace tw::hip {

// CK Tile holds every result of the kernel to the range of fp8, of whatever type the results are.
template <class> struct AsItIs {
  template <class T> __host__ __device__ constexpr T operator()(const T &x) const { return x; }
};

// Scales are arguments of a whole call in CK Tile; here a block makes its own of them, by its sequence and head.
template <class Config, class Arguments> __device__ void set_scales(Arguments &to, const AttentionLaunch &x) {
  const bool by_lengths = Config::packed && x.lengths_k;  // as grid_of lays blocks
  const int head = int(blockIdx.x), sequence = int(by_lengths ? blockIdx.y : blockIdx.z);
  // Weights of at most 1 are spread over the range of fp8: 240, or 448.
  constexpr float spread = CK_TILE_USE_OCP_FP8 ? 256.0f : 128.0f;
  to.scale_s = x.scale * scale_at(x.q_scales, sequence, head, 0) * scale_at(x.k_scales, sequence, head / x.group, 0);
  to.scale_p = spread;
  to.scale_o = scale_at(x.v_scales, sequence, head / x.group, 0) / spread;
}

}  // namespace tw::hip

#define saturates tw::hip::AsItIs
#include <ck_tile/ops/fmha/kernel/fmha_fwd_kernel.hpp>
#undef saturates
#endif
