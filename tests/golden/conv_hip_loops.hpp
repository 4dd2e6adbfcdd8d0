// conv_backward_data_2d_bf16_loops_gfx1100_fb26806d
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/hip/conv/loops/kernel.h>
#include <tilewright/hip/conv/loops/limits.h>

namespace tw_fb26806d22c41a02 {
struct Config {
  using A = tw::bf16;
  using B = A;
  using C = tw::bf16;
  using D = tw::bf16;
  static constexpr auto variant = tw::ConvVariant::backward_data;
  static constexpr int spatial = 2, num_d = 0;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
};
TW_LIMITS(Limits, tw::selection::hip_conv::loops, s.none = 0; )
}  // namespace tw_fb26806d22c41a02

TW_EXPORT_STRUCT(R"json({"arch":"gfx1100","op":"conv","schedule":{"pipeline":"loops"},"schema":2,"signature":{"dtype":"bf16","dtype_acc":"fp32","dtype_d":"bf16","dtype_out":"bf16","epilogue":"PassThrough","num_d":0,"spatial":2,"variant":"backward_data"}})json", tw::hip::ConvLoopsKernel<tw_fb26806d22c41a02::Config, tw_fb26806d22c41a02::Limits>)
