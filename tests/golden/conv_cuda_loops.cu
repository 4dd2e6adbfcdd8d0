// conv_forward_2d_bf16_Relu_d2_loops_sm_80_3fc544eb
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/conv.h>
#include <tilewright/cuda/conv_loops.h>
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/conv_host_loops.h>
#endif

namespace {
struct Config {
  using A = tw::bf16;
  using B = A;
  using C = tw::bf16;
  using D = tw::fp32;
  static constexpr auto variant = tw::ConvVariant::forward;
  static constexpr int spatial = 2, num_d = 2;
  static constexpr auto epilogue = tw::Epilogue::Relu;
#ifndef __CUDA_ARCH__
  using Host = tw::cuda::HostConvLoops<Config>;
#endif
};
}  // namespace

TW_DEVICE_CONV_LOOPS(Config, conv_forward_2d_bf16_Relu_d2_loops_sm_80_3fc544eb)
TW_EXPORT_CONV(Config, conv_forward_2d_bf16_Relu_d2_loops_sm_80_3fc544eb, R"json({"arch":"sm_80","op":"conv","schedule":{"pipeline":"loops"},"schema":2,"signature":{"dtype":"bf16","dtype_acc":"fp32","dtype_d":"fp32","dtype_out":"bf16","epilogue":"Relu","num_d":2,"spatial":2,"variant":"forward"}})json", nullptr)
