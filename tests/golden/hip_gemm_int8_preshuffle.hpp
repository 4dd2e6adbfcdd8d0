// gemm_int8_to_int32_rcr_preshuffle_preshuffle_128x128x128_1x4x1_16x16x32_cshuffle_padmn_gfx942_76b0e122
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/glue_mid_2025.h>
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/gemm/block/block_wp_asmem_bsmem_creg_v1.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_scheduler.hpp>
#include <ck_tile/ops/gemm/pipeline/wp_pipeline_agmem_bgmem_creg_v1.hpp>
#endif

namespace tw_76b0e122bb8a6fe4 {
struct Config {
  using A = TW_ELEMENT(ck_tile::int8_t, 1);
  using B = TW_ELEMENT(ck_tile::int8_t, 1);
  using Acc = tw::int32;
  using C = tw::int32;
  using D = tw::int32;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
#if defined(__HIP_DEVICE_COMPILE__)
  template <class Problem> using Pipeline = ck_tile::WeightPreshufflePipelineAGmemBGmemCRegV1<Problem>;
  template <class Problem> using PipelineBase = ck_tile::BaseWeightPreshufflePipelineAGmemBGmemCRegV1<Problem>;
  template <class Config> using Store = tw::hip::Shuffled<Config>;
  static constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Default;
#endif
  static constexpr int tile_m = 128, tile_n = 128, tile_k = 128;
  static constexpr int warp_grid_m = 1, warp_grid_n = 4, warp_grid_k = 1;
  static constexpr int warp_tile_m = 16, warp_tile_n = 16, warp_tile_k = 32;
  static constexpr bool pad_m = true, pad_n = true, pad_k = false;
  static constexpr bool preshuffle = true, persistent = false;
  static constexpr int split_k = 1, wave_groups = 1, lds_buffers = 1;
  static constexpr auto tails = tw::hip::Tails::one;
  static constexpr int threads = 256, stages = 1;
  static constexpr int least_loops = 2, loop_step = 2;
  static constexpr int width_a = 16, width_b = 16, width_c = 4;
  static constexpr int turn_m = 2, turn_n = 2, turn_parts = 1;
  static constexpr int lds_bytes = 16384;
};
TW_LIMITS(Limits, tw::selection::hip_gemm::ck_tile, s.tile_m = 128; s.tile_n = 128; s.tile_k = 128; s.grain_m = 1; s.grain_n = 1; s.grain_k = 256; s.pipeline = 4; s.warp_tile_n = 16; s.split_k = 1; s.threads = 256; s.width_a = 16; s.width_b = 16; )
}  // namespace tw_76b0e122bb8a6fe4

TW_EXPORT_GEMM(tw_76b0e122bb8a6fe4::Config, tw_76b0e122bb8a6fe4::Limits, R"json({"arch":"gfx942","op":"gemm","schedule":{"pad":[true,true,false],"persistent":false,"pipeline":"preshuffle","scheduler":"default","split_k":1,"store":"cshuffle","store_width":0,"tile":[128,128,128],"warp_grid":[1,4,1],"warp_tile":[16,16,32]},"schema":2,"signature":{"dtype_a":"int8","dtype_acc":"int32","dtype_b":"int8","dtype_c":"int32","dtype_d":"int32","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"preshuffle"}})json")
