// The host's half of convolutions that are matrix products: a window of one tap that moves pixel by pixel and meets no
// padding.  Pixels are rows (of gradients of weights: k), groups the batch; the rest is GEMM's.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/cuda/gemm_host.h>

namespace tw::cuda {

// Config: what GEMM's kernels ask (a_rows, b_rows, pipeline, ...), and `variant`.
template <class Config> struct HostConvPointwise {
  using Product = typename host_of<Config, Config::pipeline>::type;
  static constexpr bool forward = Config::variant == ConvVariant::forward,
                        data = Config::variant == ConvVariant::backward_data,
                        weight = Config::variant == ConvVariant::backward_weight;
  static_assert(Config::a_rows == !weight && Config::b_rows == !forward, "operands of the product lie as those of x, w, y");
  static constexpr int64_t clear_bytes = Product::clear_bytes;

  static Answer broken(const tw_conv_args &x) {
    if (nothing_written<Config>(x)) return {};
    for (int i = 0; i < TW_CONV_SPATIAL; ++i)
      if (x.window[i] != 1 || x.before[i] || x.out[i] != x.size[i] || (x.stride[i] != 1 && x.out[i] != 1))
        return {TW_LIMIT, "windows are not one pixel at each place, without padding"};
    if (x.x_strides[4] != 1 || x.w_strides[4] != 1 || x.y_strides[4] != 1)
      return {TW_LIMIT, "channels do not lie side by side"};
    if (!dense(x.x_strides, x) || !dense(x.y_strides, x))
      return {TW_LIMIT, "the pixels of x or y do not lie at equal distances"};
    for (int i = 0; i < Config::num_d; ++i)
      if (!dense(x.d_strides[i], x) || (x.d_strides[i][4] & ~int64_t(1)))
        return {TW_LIMIT, "the pixels of a D do not lie at equal distances"};
    const tw_gemm_args g = product(x);
    Answer common = broken_sizes<Config>(&g, false);
    if (!common.code) common = broken_fused<Config>(g);
    return common.code ? common : Product::broken(g);
  }
  static int64_t workspace(const tw_conv_args &x) { return Product::workspace(product(x)); }
  static constexpr LaunchShape shape() { return Product::shape(); }
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    return Product::run(product(x), place, workspace, stream);
  }

 private:
  // Whether pixels lie at equal distances; a stride along one pixel says nothing.
  static bool dense(const int64_t *strides, const tw_conv_args &x) {
    int64_t apart = strides[3];
    for (int i = 2; i > 0; --i) {
      apart *= x.size[i];
      if (x.size[i - 1] != 1 && strides[i] != apart) return false;
    }
    return x.batch == 1 || strides[0] == apart * x.size[0];
  }

  static tw_gemm_args product(const tw_conv_args &x) {
    tw_gemm_args g{};
    const int64_t rows = x.batch * x.out[0] * x.out[1] * x.out[2];
    const int64_t filters_apart = x.w_strides[0], group_apart = filters_apart * x.filters;
    g.batch = x.groups, g.alpha = 1;
    if (weight) g.m = x.filters, g.n = x.channels, g.k = rows;
    else g.m = rows, g.n = data ? x.channels : x.filters, g.k = data ? x.filters : x.channels;
    g.a = forward ? x.x : x.y, g.b = weight ? x.x : x.w, g.e = forward ? x.y : data ? x.x : x.w;
    g.a_stride = forward ? x.x_strides[3] : x.y_strides[3];
    g.a_batch_stride = forward ? x.channels : x.filters;
    g.b_stride = weight ? x.x_strides[3] : filters_apart, g.b_batch_stride = weight ? x.channels : group_apart;
    g.e_stride = forward ? x.y_strides[3] : data ? x.x_strides[3] : filters_apart;
    g.e_batch_stride = forward ? x.filters : data ? x.channels : group_apart;
    for (int i = 0; i < Config::num_d; ++i) {
      g.d[i] = x.d[i], g.d_row_stride[i] = x.d_strides[i][3], g.d_col_stride[i] = x.d_strides[i][4];
      g.d_batch_stride[i] = x.d_strides[i][4] * x.filters;
    }
    return g;
  }
};

}  // namespace tw::cuda
