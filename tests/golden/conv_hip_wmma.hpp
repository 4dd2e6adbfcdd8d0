// conv_forward_2d_fp16_wmma_64x64x32_2x2x1_vectors8x8x8_copied_gfx1201_c124b866
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/conv/tiled/kernel.h>
#include <tilewright/hip/conv/copied.h>
#include <tilewright/hip/conv/tiled/limits.h>

namespace tw_c124b86628edbea3 {
struct Config {
  using A = tw::fp16;
  using B = A;
  using Acc = tw::fp32;
  using C = tw::fp16;
  using D = tw::fp16;
  static constexpr auto variant = tw::ConvVariant::forward;
  static constexpr int spatial = 2, num_d = 0;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr auto tails = tw::hip::Tails::one;
  static constexpr int tile_m = 64, tile_n = 64, tile_k = 32, warp_grid_m = 2, warp_grid_n = 2, split_k = 1;
  static constexpr int merged = 1, threads = 128, stages = 1, least_loops = 1, read_a = 8, read_b = 8;
  static constexpr int width_c = 8, lds_bytes = 10240;
  static constexpr bool pointwise = false, matrix = true;
};
TW_LIMITS(Limits, tw::selection::hip_conv::tiled, s.tile_m = 64; s.tile_n = 64; s.tile_k = 32; s.split_k = 1; s.threads = 128; s.read_a = 8; s.read_b = 8; s.pointwise = 0; s.copies = 1; s.merged = 1; s.wmma = 1; s.mfma = 0; )
}  // namespace tw_c124b86628edbea3

TW_EXPORT_STRUCT(R"json({"arch":"gfx1201","op":"conv","schedule":{"merged":1,"pipeline":"wmma","special":"copied","split_k":1,"tile":[64,64,32],"vectors":[8,8,8],"warp_grid":[2,2,1]},"schema":2,"signature":{"dtype":"fp16","dtype_acc":"fp32","dtype_d":"fp16","dtype_out":"fp16","epilogue":"PassThrough","num_d":0,"spatial":2,"variant":"forward"}})json", tw::hip::ConvCopied<tw_c124b86628edbea3::Config, tw_c124b86628edbea3::Limits>)
