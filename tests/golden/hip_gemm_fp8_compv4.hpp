// gemm_fp8_e4m3xfp8_e5m2_to_fp32_rcr_compv4_128x128x128_2x2x1_32x32x64_intrawave_direct_padmnk_gfx950_89b69386
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/glue_mid_2025.h>
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/gemm/block/block_gemm_areg_breg_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_gemm_areg_breg_creg_v1.hpp>
#include <ck_tile/ops/gemm/block/block_gemm_asmem_bsmem_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_universal_gemm_as_bs_cr.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp>
#endif

namespace tw_89b693866f94a008 {
struct Config {
  using A = TW_ELEMENT(ck_tile::fp8_t, 1);
  using B = TW_ELEMENT(ck_tile::bf8_t, 1);
  using Acc = tw::fp32;
  using C = tw::fp32;
  using D = tw::fp32;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
#if defined(__HIP_DEVICE_COMPILE__)
  template <class Problem> using Pipeline = ck_tile::GemmPipelineAgBgCrCompV4<Problem>;
  template <class Problem> using PipelineBase = ck_tile::BaseGemmPipelineAgBgCrCompV4<Problem>;
  template <class Config> using Store = tw::hip::Direct<Config>;
  static constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
#endif
  static constexpr int tile_m = 128, tile_n = 128, tile_k = 128;
  static constexpr int warp_grid_m = 2, warp_grid_n = 2, warp_grid_k = 1;
  static constexpr int warp_tile_m = 32, warp_tile_n = 32, warp_tile_k = 64;
  static constexpr bool pad_m = true, pad_n = true, pad_k = true;
  static constexpr bool preshuffle = false, persistent = false;
  static constexpr int split_k = 1, wave_groups = 1, lds_buffers = 2;
  static constexpr auto tails = tw::hip::Tails::pairs;
  static constexpr int threads = 256, stages = 2;
  static constexpr int least_loops = 2, loop_step = 1;
  static constexpr int width_a = 16, width_b = 16, width_c = 1;
  static constexpr int turn_m = 1, turn_n = 1, turn_parts = 1;
  static constexpr int lds_bytes = 65536;
};
TW_LIMITS(Limits, tw::selection::hip_gemm::ck_tile, s.tile_m = 128; s.tile_n = 128; s.tile_k = 128; s.grain_m = 1; s.grain_n = 1; s.grain_k = 1; s.pipeline = 1; s.warp_tile_n = 32; s.split_k = 1; s.threads = 256; s.width_a = 16; s.width_b = 16; )
}  // namespace tw_89b693866f94a008

TW_EXPORT_GEMM(tw_89b693866f94a008::Config, tw_89b693866f94a008::Limits, R"json({"arch":"gfx950","op":"gemm","schedule":{"pad":[true,true,true],"persistent":false,"pipeline":"compv4","scheduler":"intrawave","split_k":1,"store":"direct","store_width":0,"tile":[128,128,128],"warp_grid":[2,2,1],"warp_tile":[32,32,64]},"schema":2,"signature":{"dtype_a":"fp8_e4m3","dtype_acc":"fp32","dtype_b":"fp8_e5m2","dtype_c":"fp32","dtype_d":"fp32","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"standard"}})json")
