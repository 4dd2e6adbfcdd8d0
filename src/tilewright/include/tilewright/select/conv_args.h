// A kernel's own check of a convolution, by the limits that selection uses too.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/select/check.h>
#include <tilewright/select/conv.h>

namespace tw {
namespace selection {

// What limits may read of a problem, from the arguments of a call.  Config: A, C, D, variant, spatial, num_d.  What is
// fused beyond the number of D tensors, and padding after the last pixel, no limit reads.
template <class Config> ConvProblem conv_of(const tw_conv_args &x, bool aligned = true) {
  ConvProblem p{};
  p.variant = int64_t(Config::variant), p.dims = Config::spatial;
  p.batch = x.batch, p.groups = x.groups, p.channels = x.groups * x.channels, p.filters = x.groups * x.filters;
  p.size_0 = x.size[0], p.size_1 = x.size[1], p.size_2 = x.size[2];
  p.window_0 = x.window[0], p.window_1 = x.window[1], p.window_2 = x.window[2];
  p.stride_0 = x.stride[0], p.stride_1 = x.stride[1], p.stride_2 = x.stride[2];
  p.dilation_0 = x.dilation[0], p.dilation_1 = x.dilation[1], p.dilation_2 = x.dilation[2];
  p.before_0 = x.before[0], p.before_1 = x.before[1], p.before_2 = x.before[2];
  p.out_0 = x.out[0], p.out_1 = x.out[1], p.out_2 = x.out[2];
  p.x_image = x.x_strides[0], p.x_0 = x.x_strides[1], p.x_1 = x.x_strides[2], p.x_2 = x.x_strides[3];
  p.w_filter = x.w_strides[0], p.w_0 = x.w_strides[1], p.w_1 = x.w_strides[2], p.w_2 = x.w_strides[3];
  p.y_image = x.y_strides[0], p.y_0 = x.y_strides[1], p.y_1 = x.y_strides[2], p.y_2 = x.y_strides[3];
  p.x_channel = x.x_strides[4], p.w_channel = x.w_strides[4], p.y_channel = x.y_strides[4];
  p.size = sizeof(typename Config::A), p.size_out = sizeof(typename Config::C), p.size_d = sizeof(typename Config::D);
  p.num_d = Config::num_d, p.aligned = aligned;
  return p;
}

// 0, or the code of the rule that a call breaks, with its sentence in `why`.
template <class Config, class Limits> int check_conv(const tw_conv_args *x, bool aligned, char *why, size_t bytes) {
  const Answer common = broken_conv<Config>(x);
  if (common.code) return say(common, why, bytes);
  const ConvProblem p = conv_of<Config>(*x, aligned);
  return check<Limits>(Conv(p), why, bytes);
}

}  // namespace selection
}  // namespace tw
