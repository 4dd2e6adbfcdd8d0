// gemm_fp16_rcr_compv5_64x64x32_1x1x2_32x32x16_intrawave_cshuffle_nopad_gfx942_c686433e
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/glue_mid_2025.h>
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/gemm/block/block_gemm_areg_breg_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_gemm_areg_breg_creg_v1.hpp>
#include <ck_tile/ops/gemm/block/block_gemm_asmem_bsmem_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_universal_gemm_as_bs_cr.hpp>
#include <tilewright/hip/ck_tile_comp_v5.h>
#endif

namespace tw_c686433ef1a1c248 {
struct Config {
  using A = TW_ELEMENT(ck_tile::half_t, 2);
  using B = TW_ELEMENT(ck_tile::half_t, 2);
  using Acc = tw::fp32;
  using C = tw::fp16;
  using D = tw::fp16;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
#if defined(__HIP_DEVICE_COMPILE__)
  template <class Problem> using Pipeline = ck_tile::GemmPipelineAgBgCrCompV5<Problem>;
  template <class Problem> using PipelineBase = ck_tile::BaseGemmPipelineAgBgCrCompV5<Problem>;
  template <class Config> using Store = tw::hip::Shuffled<Config>;
  static constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
#endif
  static constexpr int tile_m = 64, tile_n = 64, tile_k = 32;
  static constexpr int warp_grid_m = 1, warp_grid_n = 1, warp_grid_k = 2;
  static constexpr int warp_tile_m = 32, warp_tile_n = 32, warp_tile_k = 16;
  static constexpr bool pad_m = false, pad_n = false, pad_k = false;
  static constexpr bool preshuffle = false, persistent = false;
  static constexpr int split_k = 1, wave_groups = 2, lds_buffers = 1;
  static constexpr auto tails = tw::hip::Tails::one;
  static constexpr int threads = 128, stages = 1;
  static constexpr int least_loops = 1, loop_step = 1;
  static constexpr int width_a = 8, width_b = 8, width_c = 8;
  static constexpr int turn_m = 2, turn_n = 2, turn_parts = 1;
  static constexpr int lds_bytes = 16384;
};
TW_LIMITS(Limits, tw::selection::hip_gemm::ck_tile, s.tile_m = 64; s.tile_n = 64; s.tile_k = 32; s.grain_m = 64; s.grain_n = 64; s.grain_k = 32; s.pipeline = 2; s.warp_tile_n = 32; s.split_k = 1; s.threads = 128; s.width_a = 8; s.width_b = 8; )
}  // namespace tw_c686433ef1a1c248

TW_EXPORT_GEMM(tw_c686433ef1a1c248::Config, tw_c686433ef1a1c248::Limits, R"json({"arch":"gfx942","op":"gemm","schedule":{"pad":[false,false,false],"persistent":false,"pipeline":"compv5","scheduler":"intrawave","split_k":1,"store":"cshuffle","store_width":0,"tile":[64,64,32],"warp_grid":[1,1,2],"warp_tile":[32,32,16]},"schema":2,"signature":{"dtype_a":"fp16","dtype_acc":"fp32","dtype_b":"fp16","dtype_c":"fp16","dtype_d":"fp16","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"standard"}})json")
