// gemm_fp32_ccr_loops_generic_dd783f4f
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm/kernel.h>
#include <tilewright/cpu/gemm/loops/kernel.h>
#include <tilewright/cpu/gemm/loops/limits.h>

namespace {
struct Config {
  using A = tw::fp32;
  using B = tw::fp32;
  using C = tw::fp32;
  using D = tw::fp32;
  static constexpr bool a_rows = false;
  static constexpr bool b_rows = false;
  static constexpr bool b_packed = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr int tile_m = 1;
  static constexpr int warp_tile_m = 1;
  static constexpr int tile_n = 1;
  static constexpr int warp_tile_n = 1;
  static constexpr int tile_k = 1;
  static constexpr int warp_tile_k = 1;
  static constexpr int pad_n = 1;
  static constexpr int split_k = 1;
  static constexpr int unroll = 1;
  static constexpr int prefetch = 0;
};
TW_LIMITS(Limits, tw::selection::cpu_gemm::loops, s.none = 0; )
}  // namespace

TW_EXPORT_STRUCT(R"json({"arch":"generic","op":"gemm","schedule":{"pipeline":"loops"},"schema":2,"signature":{"dtype_a":"fp32","dtype_acc":"fp32","dtype_b":"fp32","dtype_c":"fp32","dtype_d":"fp32","epilogue":"PassThrough","layout":"ccr","num_d":0,"variant":"standard"}})json", tw::Gemm<Config, tw::GemmLoops<Config>, Limits>)
