// gemm_bf16_rcr_preshuffle_preshuffle_64x384x256_8x48x2_prefetch8_x86_64_v4_bf16_9dd94f72
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm/kernel.h>
#include <tilewright/cpu/gemm/packed/kernel.h>
#include <tilewright/cpu/gemm/packed/limits.h>

namespace {
struct Config {
  using A = tw::bf16;
  using B = tw::bf16;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr bool a_rows = true;
  static constexpr bool b_rows = false;
  static constexpr bool b_packed = true;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr int tile_m = 64;
  static constexpr int warp_tile_m = 8;
  static constexpr int tile_n = 384;
  static constexpr int warp_tile_n = 48;
  static constexpr int tile_k = 256;
  static constexpr int warp_tile_k = 2;
  static constexpr int pad_n = 1;
  static constexpr int split_k = 1;
  static constexpr int unroll = 1;
  static constexpr int prefetch = 8;
};
TW_LIMITS(Limits, tw::selection::cpu_gemm::packed, s.tile_n = 384; s.tile_k = 256; s.rows = 8; s.columns = 48; s.step = 2; s.grain_m = 1; s.grain_n = 1; s.grain_k = 1; s.split_k = 1; s.b_packed = 1; )
}  // namespace

TW_EXPORT_STRUCT(R"json({"arch":"x86_64_v4_bf16","op":"gemm","schedule":{"pad":[true,true,true],"pipeline":"preshuffle","prefetch":8,"split_k":1,"tile":[64,384,256],"unroll":1,"warp_tile":[8,48,2]},"schema":2,"signature":{"dtype_a":"bf16","dtype_acc":"fp32","dtype_b":"bf16","dtype_c":"bf16","dtype_d":"bf16","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"preshuffle"}})json", tw::Gemm<Config, tw::GemmPacked<Config, true>, Limits>)
