// The stages before and behind attention's gradients on AMD GPUs: what CUDA has too.
#pragma once
#include <tilewright/hip/attention_backward/kernel.h>
#include <tilewright/gpu/attention_backward_rows.h>

namespace tw::hip {

template <class Config> __global__ void __launch_bounds__(BackwardRows<Config>::threads)
    attention_backward_dot(const BackwardDotArgs x) {
#ifdef TW_ON_GPU  // checks of the host's half are compiled without
  backward_dot<Config>(x);
#endif
}
template <class Config> __global__ void __launch_bounds__(BackwardRows<Config>::threads)
    attention_backward_dsink(const BackwardDotArgs x) {
#ifdef TW_ON_GPU
  __shared__ float accum[BackwardRows<Config>::threads / 32];
  backward_dsink<Config>(x, accum);
#endif
}
template <class Config> __global__ void __launch_bounds__(BackwardRows<Config>::threads)
    attention_backward_convert(const BackwardConvertArgs x) {
#ifdef TW_ON_GPU
  backward_convert<Config>(x);
#endif
}

template <class Config> struct AttentionBackwardDot {
  using Args = tw_attention_backward_dot_args;
  static constexpr unsigned threads = BackwardRows<Config>::threads;
  static int64_t workspace(const Args &) { return 0; }
  static int run(const Args &x, void *, void *stream) {
    const BackwardDotArgs d = backward_dot_args<Config>(x);
    if (int status = backward_launch(&attention_backward_dot<Config>, d.blocks(), threads, stream, d)) return status;
    if constexpr (Config::dsink)
      return backward_launch(&attention_backward_dsink<Config>, x.heads_q, threads, stream, d);
    return TW_OK;
  }
};

template <class Config> struct AttentionBackwardConvert {
  using Args = tw_attention_backward_convert_args;
  static int64_t workspace(const Args &) { return 0; }
  static int run(const Args &x, void *, void *stream) {
    const BackwardConvertArgs c = backward_convert_args<Config>(x);
    return backward_launch(&attention_backward_convert<Config>, c.blocks(), unsigned(BackwardRows<Config>::threads),
                           stream, c);
  }
};

}  // namespace tw::hip
