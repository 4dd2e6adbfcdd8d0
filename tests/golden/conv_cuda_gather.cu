// conv_backward_data_3d_bf16_gather_planes_64x64x32_warps2x2_stages4_vectors1x8_sm_80_8649369d
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/conv/conv.h>
#include <tilewright/cuda/conv/gather/kernel.h>
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/conv/gather/limits.h>
#include <tilewright/cuda/conv/gather/host.h>
#endif

namespace {
struct Config {
  struct Arch {
    static constexpr auto processors = 108;
    static constexpr auto most_processors = 128;
    static constexpr auto shared_bytes = 166912;
    static constexpr auto plain_macs = 60472636815.920395;
    static constexpr auto mma_macs = 492043010752.6881;
    static constexpr auto wide_macs = 369032258064.5161;
    static constexpr auto wide_bytes = 31946107784.431137;
    static constexpr auto sync = 4.212765957446809e-06;
    static constexpr auto sums = 1061979166666.6667;
  };
  using A = tw::bf16;
  using B = A;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr auto variant = tw::ConvVariant::backward_data;
  static constexpr int spatial = 3, num_d = 0;
  static constexpr bool takes_c = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr auto tile_m = 64;
  static constexpr auto tile_n = 64;
  static constexpr auto tile_k = 32;
  static constexpr auto warps_m = 2;
  static constexpr auto warps_n = 2;
  static constexpr auto unit_m = 16;
  static constexpr auto stages = 4;
  static constexpr auto along_a = false;
  static constexpr auto along_b = false;
  static constexpr auto vector_a = 2;
  static constexpr auto vector_b = 16;
  static constexpr auto ctas_per_sm = 2;
#ifndef __CUDA_ARCH__
  using Host = tw::cuda::HostConvGather<Config>;
#endif
};
#ifndef __CUDA_ARCH__
TW_LIMITS(Limits, tw::selection::cuda_conv::gather, s.tile_m = 64; s.tile_n = 64; s.tile_k = 32; s.vector_a = 1; s.vector_b = 8; s.along_a = 0; s.along_b = 0; s.ctas_per_sm = 2; )
#endif
}  // namespace

TW_DEVICE_CONV_GATHER(Config, conv_backward_data_3d_bf16_gather_planes_64x64x32_warps2x2_stages4_vectors1x8_sm_80_8649369d)
TW_EXPORT_CONV(Config, Limits, conv_backward_data_3d_bf16_gather_planes_64x64x32_warps2x2_stages4_vectors1x8_sm_80_8649369d, R"json({"arch":"sm_80","op":"conv","schedule":{"pipeline":"gather_planes","stages":4,"tile":[64,64,32],"vectors":[1,8],"warp_grid":[2,2,1]},"schema":2,"signature":{"dtype":"bf16","dtype_acc":"fp32","dtype_d":"bf16","dtype_out":"bf16","epilogue":"PassThrough","num_d":0,"spatial":3,"variant":"backward_data"}})json", nullptr)
