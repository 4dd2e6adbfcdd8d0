// conv_backward_weight_3d_fp16_to_fp32_loops_generic_4e586a33
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/conv/kernel.h>
#include <tilewright/cpu/conv/loops/kernel.h>
#include <tilewright/cpu/conv/loops/limits.h>

namespace {
struct Config {
  using A = tw::fp16;
  using B = A;
  using C = tw::fp32;
  using D = tw::fp32;
  static constexpr auto variant = tw::ConvVariant::backward_weight;
  static constexpr int spatial = 3, num_d = 0;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
};
using Work = tw::ConvLoops<Config>;
TW_LIMITS(Limits, tw::selection::cpu_conv::loops, s.none = 0; )
}  // namespace

TW_EXPORT_STRUCT(R"json({"arch":"generic","op":"conv","schedule":{"pipeline":"loops"},"schema":2,"signature":{"dtype":"fp16","dtype_acc":"fp32","dtype_d":"fp32","dtype_out":"fp32","epilogue":"PassThrough","num_d":0,"spatial":3,"variant":"backward_weight"}})json", tw::Conv<Config, Work, Limits>)
