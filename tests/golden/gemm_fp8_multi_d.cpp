// gemm_fp8_e4m3xfp8_e5m2_to_fp16_crr_FastGelu_d2_direct_6x16x1_x86_64_v3_4126477d
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm/kernel.h>
#include <tilewright/cpu/gemm/direct/kernel.h>
#include <tilewright/cpu/gemm/direct/limits.h>

namespace {
struct Config {
  using A = tw::fp8_e4m3;
  using B = tw::fp8_e5m2;
  using C = tw::fp16;
  using D = tw::fp32;
  static constexpr bool a_rows = false;
  static constexpr bool b_rows = true;
  static constexpr bool b_packed = false;
  static constexpr auto epilogue = tw::Epilogue::FastGelu;
  static constexpr int num_d = 2;
  static constexpr int tile_m = 6;
  static constexpr int warp_tile_m = 6;
  static constexpr int tile_n = 16;
  static constexpr int warp_tile_n = 16;
  static constexpr int tile_k = 1;
  static constexpr int warp_tile_k = 1;
  static constexpr int pad_n = 1;
  static constexpr int split_k = 1;
  static constexpr int unroll = 1;
  static constexpr int prefetch = 0;
};
TW_LIMITS(Limits, tw::selection::cpu_gemm::direct, s.rows = 6; s.columns = 16; s.step = 1; )
}  // namespace

TW_EXPORT_STRUCT(R"json({"arch":"x86_64_v3","op":"gemm","schedule":{"pipeline":"direct","warp_tile":[6,16,1]},"schema":2,"signature":{"dtype_a":"fp8_e4m3","dtype_acc":"fp32","dtype_b":"fp8_e5m2","dtype_c":"fp16","dtype_d":"fp32","epilogue":"FastGelu","layout":"crr","num_d":2,"variant":"multi_d"}})json", tw::Gemm<Config, tw::GemmDirect<Config>, Limits>)
