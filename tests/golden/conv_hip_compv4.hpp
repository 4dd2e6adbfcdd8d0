// conv_backward_weight_3d_bf16_to_fp32_compv4_128x128x32_2x2x1_32x32x16_intrawave_cshuffle_vectors8x8x4_split_k16_gfx942_73a92290
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/glue_mid_2025.h>
#include <tilewright/hip/conv/ck_tile/kernel.h>
#include <tilewright/hip/conv/copied.h>
#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/gemm/block/block_gemm_areg_breg_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_gemm_areg_breg_creg_v1.hpp>
#include <ck_tile/ops/gemm/block/block_gemm_asmem_bsmem_creg_v1_custom_policy.hpp>
#include <ck_tile/ops/gemm/block/block_universal_gemm_as_bs_cr.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v4.hpp>
#endif
#include <tilewright/hip/conv/ck_tile/limits.h>

namespace tw_73a92290095e2aec {
struct Config {
  using A = TW_ELEMENT(ck_tile::bf16_t, 2);
  using B = A;
  using Acc = tw::fp32;
  using C = tw::fp32;
  using D = tw::fp32;
  static constexpr auto variant = tw::ConvVariant::backward_weight;
  static constexpr int spatial = 3, num_d = 0;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
#if defined(__HIP_DEVICE_COMPILE__)
  template <class Problem> using Pipeline = ck_tile::GemmPipelineAgBgCrCompV4<Problem>;
  template <class Problem> using PipelineBase = ck_tile::BaseGemmPipelineAgBgCrCompV4<Problem>;
  template <class Config> using Store = tw::hip::Shuffled<Config>;
  static constexpr auto scheduler = ck_tile::GemmPipelineScheduler::Intrawave;
#endif
  static constexpr auto tails = tw::hip::Tails::pairs;
  static constexpr int tile_m = 128, tile_n = 128, tile_k = 32, warp_grid_m = 2, warp_grid_n = 2, warp_grid_k = 1;
  static constexpr int warp_tile_m = 32, warp_tile_n = 32, warp_tile_k = 16, split_k = 16, merged = 1, wave_groups = 1;
  static constexpr int lds_buffers = 2, threads = 256, stages = 2, least_loops = 2, width_a = 8, width_b = 8;
  static constexpr int width_c = 4, turn_m = 1, turn_n = 1, turn_parts = 1, lds_bytes = 32768, read_a = 8;
  static constexpr int read_b = 8;
  static constexpr bool a_rows = false, b_rows = true, pad_m = true, pad_n = true;
  static constexpr bool pad_k = true, preshuffle = false, persistent = false, pointwise = false;
};
TW_LIMITS(Limits, tw::selection::hip_conv::ck_tile, s.tile_m = 128; s.tile_n = 128; s.tile_k = 32; s.split_k = 16; s.threads = 256; s.read_a = 8; s.read_b = 8; s.pointwise = 0; s.copies = 0; s.merged = 1; s.pipeline = 1; s.width_a = 8; s.width_b = 8; )
}  // namespace tw_73a92290095e2aec

TW_EXPORT_STRUCT(R"json({"arch":"gfx942","op":"conv","schedule":{"merged":1,"pipeline":"compv4","scheduler":"intrawave","special":"any","split_k":16,"store":"cshuffle","tile":[128,128,32],"vectors":[8,8,4],"warp_grid":[2,2,1],"warp_tile":[32,32,16]},"schema":2,"signature":{"dtype":"bf16","dtype_acc":"fp32","dtype_d":"fp32","dtype_out":"fp32","epilogue":"PassThrough","num_d":0,"spatial":3,"variant":"backward_weight"}})json", tw::hip::Conv<tw_73a92290095e2aec::Config, tw_73a92290095e2aec::Limits>)
