// gemm_bf16_rcr_tma_ws_128x256x64_cooperative_cluster2x1_stages4_sm_90a_180e36f1
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/gemm/gemm.h>
#ifdef __CUDACC__
#include <tilewright/cuda/gemm/tma_ws/kernel.h>
#endif

namespace {
struct Config {
  struct Arch {
    static constexpr auto processors = 132;
    static constexpr auto most_processors = 144;
    static constexpr auto shared_bytes = 232448;
    static constexpr auto plain_macs = 170000000000.0;
    static constexpr auto wide_macs = 600000000000.0;
    static constexpr auto wide_bytes = 45000000000.0;
    static constexpr auto meet = 3e-06;
    static constexpr auto sums = 2500000000000.0;
  };
  using A = tw::bf16;
  using B = tw::bf16;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr bool a_rows = true, b_rows = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr auto pipeline = tw::Pipeline::tma_ws;
  static constexpr int tile_m = 128, tile_n = 256, warps = 1, stages = 4;
  static constexpr int cluster_m = 2, cluster_n = 1;
  static constexpr bool pingpong = false, turned = false;
  static constexpr auto deal = tw::Deal::tiles;
  static constexpr bool tma_store = true, few_columns = false, packed = false;
};
}  // namespace

TW_DEVICE_TMA_WS(Config, gemm_bf16_rcr_tma_ws_128x256x64_cooperative_cluster2x1_stages4_sm_90a_180e36f1)
TW_EXPORT_GEMM(Config, gemm_bf16_rcr_tma_ws_128x256x64_cooperative_cluster2x1_stages4_sm_90a_180e36f1, R"json({"arch":"sm_90a","op":"gemm","schedule":{"cluster":[2,1],"dealing":"tiles","grouping":"cooperative","pipeline":"tma_ws","stages":4,"store":"tma","tile":[128,256,64],"turned":false},"schema":2,"signature":{"dtype_a":"bf16","dtype_acc":"fp32","dtype_b":"bf16","dtype_c":"bf16","dtype_d":"bf16","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"standard"}})json")
