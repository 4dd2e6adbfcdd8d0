// The host's half of convolutions that are matrix products: a window of one tap that moves pixel by pixel and meets no
// padding.  Pixels are rows (of gradients of weights: k), groups the batch; the rest is GEMM's.
//
// `planes`: of channels-first memory, pixels are columns (or k), and images the batch.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/cuda/gemm/host.h>
#include <tilewright/cuda/gemm/multistage/limits.h>
#include <tilewright/cuda/gemm/skinny/limits.h>
#include <tilewright/cuda/gemm/tma_ws/limits.h>

namespace tw::cuda {

// Pixels are many and their rows short: neighbours of what came are wanted soon, whoever reads them.
template <class Config, Pipeline pipeline> struct pointwise_host_of : host_of<Config, pipeline> {};
template <class Config> struct pointwise_host_of<Config, Pipeline::tma_ws> {
  using type = HostTmaWs<Config, false>;
};

// Config: what GEMM's kernels ask (a_rows, b_rows, pipeline, ...), `variant` and `planes`.
template <class Config> struct HostConvPointwise {
  using Product = typename pointwise_host_of<Config, Config::pipeline>::type;
  static constexpr bool forward = Config::variant == ConvVariant::forward,
                        data = Config::variant == ConvVariant::backward_data,
                        weight = Config::variant == ConvVariant::backward_weight, planes = Config::planes;
  static_assert(Config::a_rows == (planes ? !data : !weight) && Config::b_rows == (planes ? !weight : !forward),
                "operands of the product lie as x, w and y do");
  static constexpr int64_t clear_bytes = Product::clear_bytes;

  static Answer broken(const tw_conv_args &x) {
    if (nothing_written<Config>(x)) return {};
    for (int i = 0; i < TW_CONV_SPATIAL; ++i)
      if (x.window[i] != 1 || x.before[i] || x.out[i] != x.size[i] || (x.stride[i] != 1 && x.out[i] != 1))
        return {TW_LIMIT, "windows are not one pixel at each place, without padding"};
    if (Answer one = planes ? broken_planes(x) : broken_pixels(x); one.code) return one;
    const tw_gemm_args g = product(x);
    Answer common = broken_sizes<Config>(&g, false);
    if (!common.code) common = broken_fused<Config>(g);
    if (!common.code && !empty(g)) common = Product::broken(g);
    if (common.code) return common;
    const selection::Rule *rule = refused(g);
    return rule ? Answer{int(rule->code), "the matrix product that it is breaks a limit of GEMM's kernel"} : Answer{};
  }
  static int64_t workspace(const tw_conv_args &x) { return Product::workspace(product(x)); }
  static constexpr LaunchShape shape() { return Product::shape(); }
  static int run(const tw_conv_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    return Product::run(product(x), place, workspace, stream);
  }

 private:
  // By the limits of GEMM's kernel of these fields.
  static const selection::Rule *refused(const tw_gemm_args &g) {
    namespace families = selection::cuda_gemm;
    const auto whole = [&g](const void *at, int64_t stride, size_t size) {
      return !odd(at) && (g.batch <= 1 || !odd(stride, int64_t(size)));
    };
    selection::GemmProblem p = selection::gemm_of<Config>(g, false);
    const bool a = whole(g.a, g.a_batch_stride, sizeof(typename Config::A));
    const bool b = whole(g.b, g.b_batch_stride, sizeof(typename Config::B));
    if constexpr (Config::pipeline == Pipeline::tma_ws) {
      p.aligned = a && b && whole(g.e, g.e_batch_stride, sizeof(typename Config::C));
      families::tma_ws::Schedule s{};
      s.tile_m = Config::tile_m, s.tile_n = Config::tile_n, s.tile_k = Product::S::BK;
      s.cluster_m = Config::cluster_m, s.cluster_n = Config::cluster_n;
      s.dealing = int64_t(Config::deal), s.tma_store = Config::tma_store;
      return families::tma_ws::limits(s, p);
    } else if constexpr (Config::pipeline == Pipeline::multistage) {
      families::multistage::Schedule s{};
      s.tile_m = Config::tile_m, s.tile_n = Config::tile_n;
      s.vector_a = Config::vector_a / sizeof(typename Config::A);
      s.vector_b = Config::vector_b / sizeof(typename Config::B);
      p.aligned = (a || s.vector_a == 1) && (b || s.vector_b == 1);
      return families::multistage::limits(s, p);
    } else {
      p.aligned = a && b;  // results are stored wherever they lie
      families::skinny::Schedule s{};
      s.tile_m = Config::tile_m, s.tile_n = Config::tile_n, s.few_columns = Config::few_columns;
      return families::skinny::limits(s, p);
    }
  }
  // Whether the pixels of so many images lie at equal distances; a stride along one pixel says nothing.
  static bool dense(const int64_t *strides, const tw_conv_args &x, int64_t images) {
    int64_t apart = strides[3];
    for (int i = 2; i > 0; --i) {
      apart *= x.size[i];
      if (x.size[i - 1] != 1 && strides[i] != apart) return false;
    }
    return images == 1 || strides[0] == apart * x.size[0];
  }
  static Answer broken_pixels(const tw_conv_args &x) {
    if (x.x_strides[4] != 1 || x.w_strides[4] != 1 || x.y_strides[4] != 1)
      return {TW_LIMIT, "channels do not lie side by side"};
    if (!dense(x.x_strides, x, x.batch) || !dense(x.y_strides, x, x.batch))
      return {TW_LIMIT, "the pixels of x or y do not lie at equal distances"};
    for (int i = 0; i < Config::num_d; ++i)
      if (!dense(x.d_strides[i], x, x.batch) || (x.d_strides[i][4] & ~int64_t(1)))
        return {TW_LIMIT, "the pixels of a D do not lie at equal distances"};
    return {};
  }
  static Answer broken_planes(const tw_conv_args &x) {
    if (x.x_strides[3] != 1 || x.y_strides[3] != 1 || !dense(x.x_strides, x, 1) || !dense(x.y_strides, x, 1))
      return {TW_LIMIT, "the pixels of a channel do not lie side by side"};
    if (x.w_strides[4] != 1) return {TW_LIMIT, "the channels of w do not lie side by side"};
    if (x.batch != 1 && (x.groups > 1 || weight))
      return {TW_LIMIT, "several images, of which groups or gradients of weights are no one product"};
    for (int i = 0; i < Config::num_d; ++i)
      for (int axis = 0; axis < 4; ++axis)
        if (x.d_strides[i][axis]) return {TW_LIMIT, "a D tensor is not one number a channel"};
    if (x.batch > 1 && (x.x_strides[0] < 0 || x.y_strides[0] < 0)) return {TW_LIMIT, "images lie backwards"};
    return {};
  }

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
