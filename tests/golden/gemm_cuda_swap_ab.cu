// gemm_bf16_rcr_preshuffle_tma_ws_16x64x64_pingpong_swap_ab_split_k_stages8_direct_sm_90a_89fe70fb
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/gemm/gemm.h>
#ifdef __CUDACC__
#include <tilewright/cuda/gemm/tma_ws/kernel.h>
#endif
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/gemm/tma_ws/limits.h>
#endif

namespace {
struct Config {
  struct Arch {
    static constexpr auto processors = 132;
    static constexpr auto most_processors = 144;
    static constexpr auto shared_bytes = 232448;
    static constexpr auto plain_macs = 170000000000.0;
    static constexpr auto mma_macs = 800000000000.0;
    static constexpr auto wide_macs = 600000000000.0;
    static constexpr auto wide_bytes = 45000000000.0;
    static constexpr auto sync = 3e-06;
    static constexpr auto sums = 2500000000000.0;
  };
  using A = tw::bf16;
  using B = tw::bf16;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr bool packed = true;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr auto pipeline = tw::Pipeline::tma_ws;
  static constexpr auto tile_m = 16;
  static constexpr auto tile_n = 64;
  static constexpr auto stages = 8;
  static constexpr auto cluster_m = 1;
  static constexpr auto cluster_n = 1;
  static constexpr auto pingpong = true;
  static constexpr auto swap_ab = true;
  static constexpr auto tile_scheduler = tw::TileScheduler::split_k;
  static constexpr auto tma_store = false;
};
#ifndef __CUDA_ARCH__
TW_LIMITS(Limits, tw::selection::cuda_gemm::tma_ws, s.tile_m = 16; s.tile_n = 64; s.tile_k = 64; s.cluster_m = 1; s.cluster_n = 1; s.pingpong = 1; s.swap_ab = 1; s.tile_scheduler = 2; s.tma_store = 0; )
#endif
}  // namespace

TW_DEVICE_TMA_WS(Config, gemm_bf16_rcr_preshuffle_tma_ws_16x64x64_pingpong_swap_ab_split_k_stages8_direct_sm_90a_89fe70fb)
TW_DEVICE_PACK(Config, gemm_bf16_rcr_preshuffle_tma_ws_16x64x64_pingpong_swap_ab_split_k_stages8_direct_sm_90a_89fe70fb)
TW_EXPORT_GEMM(Config, Limits, gemm_bf16_rcr_preshuffle_tma_ws_16x64x64_pingpong_swap_ab_split_k_stages8_direct_sm_90a_89fe70fb, R"json({"arch":"sm_90a","op":"gemm","schedule":{"cluster":[1,1],"dealing":"split_k","grouping":"pingpong","pipeline":"tma_ws","stages":8,"store":"direct","tile":[16,64,64],"turned":true},"schema":2,"signature":{"dtype_a":"bf16","dtype_acc":"fp32","dtype_b":"bf16","dtype_c":"bf16","dtype_d":"bf16","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"preshuffle"}})json")
