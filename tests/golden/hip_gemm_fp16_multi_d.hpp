// gemm_fp16_rrr_FastGelu_d2_compv3_256x128x32_2x2x1_32x32x16_intrawave_cshuffle_persistent_padmnk_gfx942_bf6d3c49
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/glue_mid_2025.h>
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/gemm/block/block_gemm_asmem_bsmem_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_universal_gemm_as_bs_cr.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_universal_pipeline_ag_bg_cr_policy.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v3.hpp>
#endif

namespace tw_bf6d3c49b912f5df {
struct Config {
  using A = TW_ELEMENT(ck_tile::half_t, 2);
  using B = TW_ELEMENT(ck_tile::half_t, 2);
  using Acc = tw::fp32;
  using C = tw::fp16;
  using D = tw::fp16;
  static constexpr bool a_rows = true, b_rows = true;
  static constexpr auto epilogue = tw::Epilogue::FastGelu;
  static constexpr int num_d = 2;
#if defined(__HIP_DEVICE_COMPILE__)
  template <class Problem> using Pipeline = ck_tile::GemmPipelineAgBgCrCompV3<Problem>;
  template <class Problem> using PipelineBase = ck_tile::BaseGemmPipelineAgBgCrCompV3<Problem>;
  template <class Config> using Store = tw::hip::Shuffled<Config>;
  static constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
#endif
  static constexpr int tile_m = 256, tile_n = 128, tile_k = 32;
  static constexpr int warp_grid_m = 2, warp_grid_n = 2, warp_grid_k = 1;
  static constexpr int warp_tile_m = 32, warp_tile_n = 32, warp_tile_k = 16;
  static constexpr bool pad_m = true, pad_n = true, pad_k = true;
  static constexpr bool preshuffle = false, persistent = true;
  static constexpr int split_k = 1, wave_groups = 1, lds_buffers = 1;
  static constexpr auto tails = tw::hip::Tails::three;
  static constexpr int threads = 256, stages = 2;
  static constexpr int least_loops = 1, loop_step = 1;
  static constexpr int width_a = 8, width_b = 8, width_c = 8;
  static constexpr int turn_m = 1, turn_n = 1, turn_parts = 1;
  static constexpr int lds_bytes = 24576;
};
TW_LIMITS(Limits, tw::selection::hip_gemm::ck_tile, s.tile_m = 256; s.tile_n = 128; s.tile_k = 32; s.grain_m = 1; s.grain_n = 1; s.grain_k = 1; s.pipeline = 0; s.warp_tile_n = 32; s.split_k = 1; s.threads = 256; s.width_a = 8; s.width_b = 8; )
}  // namespace tw_bf6d3c49b912f5df

TW_EXPORT_GEMM(tw_bf6d3c49b912f5df::Config, tw_bf6d3c49b912f5df::Limits, R"json({"arch":"gfx942","op":"gemm","schedule":{"pad":[true,true,true],"persistent":true,"pipeline":"compv3","scheduler":"intrawave","split_k":1,"store":"cshuffle","store_width":0,"tile":[256,128,32],"warp_grid":[2,2,1],"warp_tile":[32,32,16]},"schema":2,"signature":{"dtype_a":"fp16","dtype_acc":"fp32","dtype_b":"fp16","dtype_c":"fp16","dtype_d":"fp16","epilogue":"FastGelu","layout":"rrr","num_d":2,"variant":"multi_d"}})json")
