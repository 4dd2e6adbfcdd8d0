// gemm_bf16_rcr_multistage_128x256x32_2x4x1_16x8x16_split_k_stages4_vector1x8_sm_80_f01938f5
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/gemm/gemm.h>
#ifdef __CUDACC__
#include <tilewright/cuda/gemm/multistage/kernel.h>
#endif
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/gemm/multistage/limits.h>
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
  using B = tw::bf16;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr bool packed = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr auto pipeline = tw::Pipeline::multistage;
  static constexpr auto tile_m = 128;
  static constexpr auto tile_n = 256;
  static constexpr auto tile_k = 32;
  static constexpr auto warps_m = 2;
  static constexpr auto warps_n = 4;
  static constexpr auto unit_m = 16;
  static constexpr auto stages = 4;
  static constexpr auto vector_a = 2;
  static constexpr auto vector_b = 16;
  static constexpr auto tile_scheduler = tw::TileScheduler::split_k;
};
#ifndef __CUDA_ARCH__
TW_LIMITS(Limits, tw::selection::cuda_gemm::multistage, s.tile_m = 128; s.tile_n = 256; s.tile_k = 32; s.warps_m = 2; s.warps_n = 4; s.vector_a = 1; s.vector_b = 8; s.tile_scheduler = 2; s.shared_bytes = 122880; )
#endif
}  // namespace

TW_DEVICE_MULTISTAGE(Config, gemm_bf16_rcr_multistage_128x256x32_2x4x1_16x8x16_split_k_stages4_vector1x8_sm_80_f01938f5)
TW_EXPORT_GEMM(Config, Limits, gemm_bf16_rcr_multistage_128x256x32_2x4x1_16x8x16_split_k_stages4_vector1x8_sm_80_f01938f5, R"json({"arch":"sm_80","op":"gemm","schedule":{"dealing":"split_k","pipeline":"multistage","stages":4,"tile":[128,256,32],"vector":[1,8],"warp_grid":[2,4,1],"warp_tile":[16,8,16]},"schema":2,"signature":{"dtype_a":"bf16","dtype_acc":"fp32","dtype_b":"bf16","dtype_c":"bf16","dtype_d":"bf16","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"standard"}})json")
