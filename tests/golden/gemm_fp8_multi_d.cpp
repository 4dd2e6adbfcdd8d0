// gemm_fp8_e4m3xfp8_e5m2_to_fp16_crr_FastGelu_d2_direct_6x16x1_x86_64_v3_4126477d
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm.h>

namespace {
struct Config {
  using A = tw::fp8_e4m3;
  using B = tw::fp8_e5m2;
  using C = tw::fp16;
  using D = tw::fp32;
  static constexpr bool a_rows = false;
  static constexpr bool b_rows = true;
  static constexpr auto epilogue = tw::Epilogue::FastGelu;
  static constexpr int num_d = 2;
  static constexpr auto pipeline = tw::Pipeline::direct;
  static constexpr int tile_m = 6, tile_n = 16, tile_k = 1;
  static constexpr int warp_tile_m = 6, warp_tile_n = 16, warp_tile_k = 1;
  static constexpr bool pad_m = true, pad_n = true, pad_k = true;
  static constexpr int split_k = 1, unroll = 1, prefetch = 0;
};
}  // namespace

TW_EXPORT_GEMM(Config, R"json({"arch":"x86_64_v3","op":"gemm","schedule":{"pipeline":"direct","warp_tile":[6,16,1]},"schema":2,"signature":{"dtype_a":"fp8_e4m3","dtype_acc":"fp32","dtype_b":"fp8_e5m2","dtype_c":"fp16","dtype_d":"fp32","epilogue":"FastGelu","layout":"crr","num_d":2,"variant":"multi_d"}})json")
