// conv_forward_2d_bf16_Relu_d2_loops_sm_80_3fc544eb
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cuda/conv/conv.h>
#include <tilewright/cuda/conv/loops/kernel.h>
#ifndef __CUDA_ARCH__
#include <tilewright/cuda/conv/loops/limits.h>
#include <tilewright/cuda/conv/loops/host.h>
#endif

namespace {
struct Config {
  struct Arch {
    static constexpr auto processors = 108;
    static constexpr auto most_processors = 128;
    static constexpr auto shared_bytes = 166912;
    static constexpr auto plain_macs = 60472636815.920395;
    static constexpr auto mma_macs = 492043010752.6881;
    static constexpr auto wide_macs = 369032258064.5161;
    static constexpr auto wide_bytes = 31946107784.431137;
    static constexpr auto sync = 4.212765957446809e-06;
    static constexpr auto sums = 1061979166666.6667;
  };
  using A = tw::bf16;
  using B = A;
  using C = tw::bf16;
  using D = tw::fp32;
  static constexpr auto variant = tw::ConvVariant::forward;
  static constexpr int spatial = 2, num_d = 2;
  static constexpr bool takes_c = false;
  static constexpr auto epilogue = tw::Epilogue::Relu;
#ifndef __CUDA_ARCH__
  using Host = tw::cuda::HostConvLoops<Config>;
#endif
};
#ifndef __CUDA_ARCH__
TW_LIMITS(Limits, tw::selection::cuda_conv::loops, s.none = 0; )
#endif
}  // namespace

TW_DEVICE_CONV_LOOPS(Config, conv_forward_2d_bf16_Relu_d2_loops_sm_80_3fc544eb)
TW_EXPORT_CONV(Config, Limits, conv_forward_2d_bf16_Relu_d2_loops_sm_80_3fc544eb, R"json({"arch":"sm_80","op":"conv","schedule":{"pipeline":"loops"},"schema":2,"signature":{"dtype":"bf16","dtype_acc":"fp32","dtype_d":"fp32","dtype_out":"bf16","epilogue":"Relu","num_d":2,"spatial":2,"variant":"forward"}})json", nullptr)
