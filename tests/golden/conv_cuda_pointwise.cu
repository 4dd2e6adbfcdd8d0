// conv_backward_data_2d_bf16_planes_tma_ws_128x160x64_pingpong_cluster2x1_stages5_sm_90a_3e5221d2
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/conv/conv.h>
#include <tilewright/cuda/conv/pointwise_tma_ws/kernel.h>
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/conv/pointwise_tma_ws/limits.h>
#include <tilewright/cuda/conv/pointwise/host.h>
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
  using B = A;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr auto variant = tw::ConvVariant::backward_data;
  static constexpr int spatial = 2, num_d = 0;
  static constexpr bool takes_c = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr auto a_rows = false;
  static constexpr auto b_rows = true;
  static constexpr auto packed = false;
  static constexpr auto planes = true;
  static constexpr auto pipeline = tw::Pipeline::tma_ws;
  static constexpr auto tile_m = 128;
  static constexpr auto tile_n = 160;
  static constexpr auto stages = 5;
  static constexpr auto cluster_m = 2;
  static constexpr auto cluster_n = 1;
  static constexpr auto pingpong = true;
  static constexpr auto swap_ab = false;
  static constexpr auto tma_store = true;
  static constexpr auto tile_scheduler = tw::TileScheduler::data_parallel;
#ifndef __CUDA_ARCH__
  using Host = tw::cuda::HostConvPointwise<Config>;
#endif
};
#ifndef __CUDA_ARCH__
TW_LIMITS(Limits, tw::selection::cuda_conv::pointwise_tma_ws, s.product.tile_m = 128; s.product.tile_n = 160; s.product.tile_k = 64; s.product.cluster_m = 2; s.product.cluster_n = 1; s.product.pingpong = 1; s.product.swap_ab = 0; s.product.tile_scheduler = 0; s.product.tma_store = 1; s.planes = 1; )
#endif
}  // namespace

TW_DEVICE_TMA_WS(Config, conv_backward_data_2d_bf16_planes_tma_ws_128x160x64_pingpong_cluster2x1_stages5_sm_90a_3e5221d2)
TW_EXPORT_CONV(Config, Limits, conv_backward_data_2d_bf16_planes_tma_ws_128x160x64_pingpong_cluster2x1_stages5_sm_90a_3e5221d2, R"json({"arch":"sm_90a","op":"conv","schedule":{"cluster":[2,1],"dealing":"tiles","grouping":"pingpong","pipeline":"planes_tma_ws","stages":5,"store":"tma","tile":[128,160,64]},"schema":2,"signature":{"dtype":"bf16","dtype_acc":"fp32","dtype_d":"bf16","dtype_out":"bf16","epilogue":"PassThrough","num_d":0,"spatial":2,"variant":"backward_data"}})json", "conv_backward_data_2d_bf16_planes_tma_ws_128x160x64_pingpong_cluster2x1_stages5_sm_90a_3e5221d2_repack")
