// gemm_bf16_crr_mem_64x64x64_2x2x1_16x16x32_interwave_cshuffle_split_k4_padmnk_gfx90a_e580140a
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/glue_mid_2025.h>
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/gemm/block/block_gemm_asmem_bsmem_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_universal_gemm_as_bs_cr.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_universal_pipeline_ag_bg_cr_policy.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_mem.hpp>
#endif

namespace tw_e580140af86ee05f {
struct Config {
  using A = TW_ELEMENT(ck_tile::bf16_t, 2);
  using B = TW_ELEMENT(ck_tile::bf16_t, 2);
  using Acc = tw::fp32;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr bool a_rows = false, b_rows = true;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
#if defined(__HIP_DEVICE_COMPILE__)
  template <class Problem> using Pipeline = ck_tile::GemmPipelineAgBgCrMem<Problem>;
  template <class Problem> using PipelineBase = ck_tile::BaseGemmPipelineAgBgCrMem<Problem>;
  template <class Config> using Store = tw::hip::Shuffled<Config>;
  static constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Interwave;
#endif
  static constexpr int tile_m = 64, tile_n = 64, tile_k = 64;
  static constexpr int warp_grid_m = 2, warp_grid_n = 2, warp_grid_k = 1;
  static constexpr int warp_tile_m = 16, warp_tile_n = 16, warp_tile_k = 32;
  static constexpr bool pad_m = true, pad_n = true, pad_k = true;
  static constexpr bool preshuffle = false, persistent = false;
  static constexpr int split_k = 4, wave_groups = 1, lds_buffers = 1;
  static constexpr auto tails = tw::hip::Tails::stages;
  static constexpr int threads = 256, stages = 2;
  static constexpr int least_loops = 1, loop_step = 1;
  static constexpr int width_a = 8, width_b = 8, width_c = 8;
  static constexpr int turn_m = 2, turn_n = 2, turn_parts = 1;
  static constexpr int lds_bytes = 16384;
};
TW_LIMITS(Limits, tw::selection::hip_gemm::ck_tile, s.tile_m = 64; s.tile_n = 64; s.tile_k = 64; s.grain_m = 1; s.grain_n = 1; s.grain_k = 1; s.pipeline = 3; s.warp_tile_n = 16; s.split_k = 4; s.threads = 256; s.width_a = 8; s.width_b = 8; )
}  // namespace tw_e580140af86ee05f

TW_EXPORT_GEMM(tw_e580140af86ee05f::Config, tw_e580140af86ee05f::Limits, R"json({"arch":"gfx90a","op":"gemm","schedule":{"pad":[true,true,true],"persistent":false,"pipeline":"mem","scheduler":"interwave","split_k":4,"store":"cshuffle","store_width":0,"tile":[64,64,64],"warp_grid":[2,2,1],"warp_tile":[16,16,32]},"schema":2,"signature":{"dtype_a":"bf16","dtype_acc":"fp32","dtype_b":"bf16","dtype_c":"bf16","dtype_d":"bf16","epilogue":"PassThrough","layout":"crr","num_d":0,"variant":"standard"}})json")
