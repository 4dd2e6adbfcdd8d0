// gemm_fp32_rrr_packed_96x256x256_6x16x1_unroll2_x86_64_v3_885058b2
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm.h>

namespace {
struct Config {
  using A = tw::fp32;
  using B = tw::fp32;
  using C = tw::fp32;
  using D = tw::fp32;
  static constexpr bool a_rows = true;
  static constexpr bool b_rows = true;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr auto pipeline = tw::Pipeline::packed;
  static constexpr int tile_m = 96, tile_n = 256, tile_k = 256;
  static constexpr int warp_tile_m = 6, warp_tile_n = 16, warp_tile_k = 1;
  static constexpr bool pad_m = true, pad_n = true, pad_k = true;
  static constexpr int split_k = 1, unroll = 2, prefetch = 0;
};
}  // namespace

TW_EXPORT_GEMM(Config, R"json({"arch":"x86_64_v3","op":"gemm","schedule":{"pad":[true,true,true],"pipeline":"packed","prefetch":0,"split_k":1,"tile":[96,256,256],"unroll":2,"warp_tile":[6,16,1]},"schema":2,"signature":{"dtype_a":"fp32","dtype_acc":"fp32","dtype_b":"fp32","dtype_c":"fp32","dtype_d":"fp32","epilogue":"PassThrough","layout":"rrr","num_d":0,"variant":"standard"}})json")
