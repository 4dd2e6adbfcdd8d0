// The host's half of convolutions that are matrix products: a window of one tap that moves pixel by pixel and meets no
// padding.  Pixels are rows (of gradients of weights: k), groups the batch; the rest is GEMM's.
//
// `planes`: of channels-first memory, pixels are columns (or k), and images the batch.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/cuda/conv/host_copies.h>
#include <tilewright/cuda/gemm/host.h>

namespace tw::cuda {

// Pixels are many and their rows short: neighbours of what came are wanted soon, whoever reads them.
template <class Config, Pipeline pipeline> struct pointwise_host_of : host_of<Config, pipeline> {};
template <class Config> struct pointwise_host_of<Config, Pipeline::tma_ws> {
  using type = HostTmaWs<Config, false>;
};

// Config: what GEMM's kernels need (a_rows, b_rows, pipeline, ...), `variant` and `planes`.
template <class Config> struct HostConvPointwise {
  using Product = typename pointwise_host_of<Config, Config::pipeline>::type;
  static constexpr bool forward = Config::variant == ConvVariant::forward,
                        data = Config::variant == ConvVariant::backward_data,
                        weight = Config::variant == ConvVariant::backward_weight, planes = Config::planes;
  static_assert(Config::a_rows == (planes ? !data : !weight) && Config::b_rows == (planes ? !weight : !forward),
                "operands of the product lie as x, w and y do");
  static constexpr int64_t clear_bytes = Product::clear_bytes;

  // Of D tensors and of addresses, which selection does not know; limits.h says the rest.
  static Answer broken(const tw_conv_args &x) {
    if (nothing_written<Config>(x)) return {};
    if (const Answer ds = planes ? Answer{} : broken_ds<Config>(x); ds.code) return ds;
    const tw_gemm_args g = product(x);
    const Answer fused = broken_fused<Config>(g);
    return fused.code || empty(g) ? fused : Product::broken(g);
  }
  static int64_t workspace(const tw_conv_args &x) { return Product::workspace(product(x)); }
  static constexpr LaunchShape shape() { return Product::shape(); }
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    return Product::run(product(x), place, workspace, stream);
  }

 private:
  static tw_gemm_args product(const tw_conv_args &x) {
    tw_gemm_args g{};
    const int64_t one_image = x.out[0] * x.out[1] * x.out[2], rows = planes ? one_image : x.batch * one_image;
    const int pixel = planes ? 4 : 3;             // what lines are apart by
    const bool images = planes && x.groups == 1;  // are the batch, and have one w
    const int64_t w_batch = images ? 0 : x.w_strides[0] * x.filters;
    const int64_t x_batch = images ? x.x_strides[0] : x.channels * x.x_strides[4];
    const int64_t y_batch = images ? x.y_strides[0] : x.filters * x.y_strides[4];
    g.batch = images ? x.batch : x.groups, g.alpha = 1;
    if (weight) g.m = x.filters, g.n = x.channels, g.k = rows;
    else g.m = data ? x.channels : x.filters, g.n = rows, g.k = data ? x.filters : x.channels;
    g.a = forward ? x.x : x.y, g.a_stride = forward ? x.x_strides[pixel] : x.y_strides[pixel];
    g.a_batch_stride = forward ? x_batch : y_batch;
    g.b = weight ? x.x : x.w, g.b_stride = weight ? x.x_strides[pixel] : x.w_strides[0];
    g.b_batch_stride = weight ? x_batch : w_batch;
    if (!weight && !planes) swap(g.m, g.n);
    if (!weight && planes) swap(g.a, g.b), swap(g.a_stride, g.b_stride), swap(g.a_batch_stride, g.b_batch_stride);
    g.e = forward ? x.y : data ? x.x : x.w;
    g.e_stride = forward ? x.y_strides[pixel] : data ? x.x_strides[pixel] : x.w_strides[0];
    g.e_batch_stride = forward ? y_batch : data ? x_batch : w_batch;
    for (int i = 0; i < Config::num_d; ++i) {
      const int64_t channel = x.d_strides[i][4];
      g.d[i] = x.d[i], g.d_row_stride[i] = planes ? channel : x.d_strides[i][3];
      g.d_col_stride[i] = planes ? 0 : channel, g.d_batch_stride[i] = images ? 0 : channel * x.filters;
    }
    return g;
  }
  template <class T> static void swap(T &one, T &other) {
    const T kept = one;
    one = other, other = kept;
  }
};

}  // namespace tw::cuda
