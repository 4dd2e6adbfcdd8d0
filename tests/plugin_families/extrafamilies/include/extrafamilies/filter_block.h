// Forward convolution in fp32: for each pixel of the result, Config::block filters are summed at a time.
#pragma once
#include <tilewright/conv_rules.h>

#include <tilewright/cpu/primitives/team.h>

namespace tw {

template <class Config> struct FilterBlock {
  static Answer broken(const tw_conv_args &x) {
    if (x.filters % Config::block) return {TW_LIMIT, "the filters of a group are no multiple of the block"};
    return {};
  }
  static int64_t workspace(const tw_conv_args &, int64_t) { return 0; }

  static int launch(const tw_conv_args &x, void *, void *stream) {
    const int64_t rows = x.batch * x.out[0] * x.out[1] * x.out[2], team = team_size(stream);
    const int64_t workers = team < rows ? team : rows;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t row = worker; row < rows; row += workers)
        for (int64_t filter = 0; filter < x.groups * x.filters; filter += Config::block) pixel(x, row, filter);
    });
    return TW_OK;
  }

 private:
  static void pixel(const tw_conv_args &x, int64_t row, int64_t filter) {
    int64_t out[3], rest = row;
    for (int d = 2; d >= 0; --d) out[d] = rest % x.out[d], rest /= x.out[d];
    const int64_t *xs = x.x_strides, *ws = x.w_strides, *ys = x.y_strides;
    const float *from = static_cast<const float *>(x.x) + rest * xs[0] + filter / x.filters * x.channels * xs[4];
    const float *w = static_cast<const float *>(x.w) + filter * ws[0];
    float accum[Config::block] = {};
    for (int64_t a = 0; a < x.window[0]; ++a)
      for (int64_t b = 0; b < x.window[1]; ++b)
        for (int64_t c = 0; c < x.window[2]; ++c) {
          const int64_t at[3] = {out[0] * x.stride[0] - x.before[0] + a * x.dilation[0],
                                 out[1] * x.stride[1] - x.before[1] + b * x.dilation[1],
                                 out[2] * x.stride[2] - x.before[2] + c * x.dilation[2]};
          bool inside = true;
          for (int d = 0; d < 3; ++d) inside = inside && at[d] >= 0 && at[d] < x.size[d];
          if (!inside) continue;
          const float *p = from + at[0] * xs[1] + at[1] * xs[2] + at[2] * xs[3];
          const float *q = w + a * ws[1] + b * ws[2] + c * ws[3];
          for (int64_t channel = 0; channel < x.channels; ++channel)
            for (int k = 0; k < Config::block; ++k) accum[k] += p[channel * xs[4]] * q[k * ws[0] + channel * ws[4]];
        }
    float *y = static_cast<float *>(x.y) + rest * ys[0] + out[0] * ys[1] + out[1] * ys[2] + out[2] * ys[3];
    for (int k = 0; k < Config::block; ++k) y[(filter + k) * ys[4]] = accum[k];
  }
};

}  // namespace tw
