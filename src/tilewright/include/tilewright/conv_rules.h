// What every convolution kernel refuses, whatever its backend.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/say.h>

namespace tw {

enum class ConvVariant { forward, backward_data, backward_weight };

inline int64_t pixels(const int64_t (&sizes)[TW_CONV_SPATIAL]) { return sizes[0] * sizes[1] * sizes[2]; }

// Nothing is written; kernels need not think of it.  A gradient of the weights is: of no images it is 0.
template <class Config> bool nothing_written(const tw_conv_args &x) {
  return x.batch == 0 && Config::variant != ConvVariant::backward_weight;
}

// Sizes, and what is fused.  Config: variant, spatial, num_d.
template <class Config> Answer broken_conv(const tw_conv_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_conv_args &x = *args;
  if (x.batch < 0) return {TW_BAD_ARGS, "the batch is negative"};
  if (x.groups < 1 || x.channels < 1 || x.filters < 1)
    return {TW_BAD_ARGS, "there is no group, or no channel or filter in it"};
  for (int d = 0; d < TW_CONV_SPATIAL; ++d) {
    if (x.size[d] < 1 || x.window[d] < 1 || x.out[d] < 1) return {TW_BAD_ARGS, "a spatial size is below 1"};
    if (x.stride[d] < 1 || x.dilation[d] < 1) return {TW_BAD_ARGS, "a stride or dilation of the window is below 1"};
    if (x.before[d] < 0) return {TW_BAD_ARGS, "the padding is negative"};
  }
  if (Config::spatial == 2 && (x.size[0] != 1 || x.window[0] != 1 || x.out[0] != 1 || x.before[0] != 0))
    return {TW_LIMIT, "the kernel has two spatial dimensions, and the depth of the problem is not 1"};
  for (int t = 0; t < Config::num_d; ++t)
    if (!nothing_written<Config>(x) && !x.d[t]) return {TW_BAD_ARGS, "a D tensor is null"};
  return {};
}

}  // namespace tw
