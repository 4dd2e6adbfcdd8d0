// gemm_fp16_rcr_Silu_d1_skinny_8x16x512_m_sm_80_a0db0b6d
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/gemm/gemm.h>
#ifdef __CUDACC__
#include <tilewright/cuda/gemm/skinny/kernel.h>
#endif
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/gemm/skinny/limits.h>
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
  using A = tw::fp16;
  using B = tw::fp16;
  using C = tw::fp16;
  using D = tw::fp16;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr bool packed = false;
  static constexpr auto epilogue = tw::Epilogue::Silu;
  static constexpr int num_d = 1;
  static constexpr auto pipeline = tw::Pipeline::skinny;
  static constexpr auto tile_m = 8;
  static constexpr auto tile_n = 16;
  static constexpr auto warps = 8;
  static constexpr auto few_columns = false;
  static constexpr auto tiled = false;
};
#ifndef __CUDA_ARCH__
TW_LIMITS(Limits, tw::selection::cuda_gemm::skinny, s.tile_m = 8; s.tile_n = 16; s.warps = 8; s.few_columns = 0; s.tiled = 0; )
#endif
}  // namespace

TW_DEVICE_SKINNY(Config, gemm_fp16_rcr_Silu_d1_skinny_8x16x512_m_sm_80_a0db0b6d)
TW_EXPORT_GEMM(Config, Limits, gemm_fp16_rcr_Silu_d1_skinny_8x16x512_m_sm_80_a0db0b6d, R"json({"arch":"sm_80","op":"gemm","schedule":{"few":"rows","pipeline":"skinny","tile":[8,16,512]},"schema":2,"signature":{"dtype_a":"fp16","dtype_acc":"fp32","dtype_b":"fp16","dtype_c":"fp16","dtype_d":"fp16","epilogue":"Silu","layout":"rcr","num_d":1,"variant":"multi_d"}})json")
