// gemm_fp32_rrr_packed_96x256x256_6x16x1_unroll2_x86_64_v3_885058b2
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm/kernel.h>
#include <tilewright/cpu/gemm/packed/kernel.h>
#include <tilewright/cpu/gemm/packed/limits.h>

namespace {
struct Config {
  using A = tw::fp32;
  using B = tw::fp32;
  using C = tw::fp32;
  using D = tw::fp32;
  static constexpr bool a_rows = true;
  static constexpr bool b_rows = true;
  static constexpr bool b_packed = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr int tile_m = 96;
  static constexpr int warp_tile_m = 6;
  static constexpr int tile_n = 256;
  static constexpr int warp_tile_n = 16;
  static constexpr int tile_k = 256;
  static constexpr int warp_tile_k = 1;
  static constexpr int pad_n = 1;
  static constexpr int split_k = 1;
  static constexpr int unroll = 2;
  static constexpr int prefetch = 0;
};
TW_LIMITS(Limits, tw::selection::cpu_gemm::packed, s.tile_n = 256; s.tile_k = 256; s.rows = 6; s.columns = 16; s.step = 1; s.grain_m = 1; s.grain_n = 1; s.grain_k = 1; s.split_k = 1; s.b_packed = 0; )
}  // namespace

TW_EXPORT_STRUCT(R"json({"arch":"x86_64_v3","op":"gemm","schedule":{"pad":[true,true,true],"pipeline":"packed","prefetch":0,"split_k":1,"tile":[96,256,256],"unroll":2,"warp_tile":[6,16,1]},"schema":2,"signature":{"dtype_a":"fp32","dtype_acc":"fp32","dtype_b":"fp32","dtype_c":"fp32","dtype_d":"fp32","epilogue":"PassThrough","layout":"rrr","num_d":0,"variant":"standard"}})json", tw::Gemm<Config, tw::GemmPacked<Config, false>, Limits>)
