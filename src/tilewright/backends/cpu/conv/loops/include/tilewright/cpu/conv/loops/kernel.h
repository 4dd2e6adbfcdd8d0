// The floor: plain loops, any size, any stride, any dtype.  Slow, short, and easy to believe.
#pragma once
#include <tilewright/conv_rules.h>

#include <tilewright/cpu/primitives/activation.h>
#include <tilewright/cpu/primitives/convert.h>
#include <tilewright/cpu/primitives/team.h>

namespace tw {

// Config: A (of the operands), C (of the result), D, variant, epilogue, num_d.
template <class Config> struct ConvLoops {
  using T = typename Config::A;
  using C = typename Config::C;
  using D = typename Config::D;
  using Sum = accumulator<T>;
  static constexpr ConvVariant variant = Config::variant;

  // The index of an element of x, w or y without its channel: image or filter, and a pixel.
  struct Place {
    int64_t first, at[TW_CONV_SPATIAL];
    int64_t offset(const int64_t *strides) const {
      return first * strides[0] + at[0] * strides[1] + at[1] * strides[2] + at[2] * strides[3];
    }
  };
  static Place place(int64_t number, const int64_t (&sizes)[TW_CONV_SPATIAL]) {
    Place p;
    for (int d = TW_CONV_SPATIAL - 1; d >= 0; --d) p.at[d] = number % sizes[d], number /= sizes[d];
    p.first = number;
    return p;
  }

  static int64_t workspace(const tw_conv_args &, int64_t) { return 0; }

  static int launch(const tw_conv_args &x, void *, void *stream) {
    const auto &sizes = variant == ConvVariant::forward         ? x.out
                        : variant == ConvVariant::backward_data ? x.size
                                                                : x.window;
    const int64_t firsts = variant == ConvVariant::backward_weight ? x.groups * x.filters : x.batch;
    const int64_t rows = firsts * pixels(sizes), team = team_size(stream), workers = team < rows ? team : rows;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t row = worker; row < rows; row += workers) {
        if constexpr (variant == ConvVariant::forward) forward(x, place(row, sizes));
        else if constexpr (variant == ConvVariant::backward_data) backward_data(x, place(row, sizes));
        else backward_weight(x, place(row, sizes));
      }
    });
    return TW_OK;
  }

 private:
  static void add(Sum &sum, T p, T q) {
    if constexpr (is_int<T>) sum = Sum(uint32_t(sum) + uint32_t(int32_t(p) * int32_t(q)));
    else sum += to_float(p) * to_float(q);
  }

  // All filters of an output pixel.
  static void forward(const tw_conv_args &x, const Place &to) {
    for (int64_t filter = 0; filter < x.groups * x.filters; ++filter) {
      const T *from = static_cast<const T *>(x.x) + filter / x.filters * x.channels * x.x_strides[4];
      const T *w = static_cast<const T *>(x.w);
      Sum sum = 0;
      for (int64_t tap = 0; tap < pixels(x.window); ++tap) {
        Place of = place(tap, x.window), at = to;
        of.first = filter;
        if (!taken(x, to, of, at)) continue;
        const T *a = from + at.offset(x.x_strides), *b = w + of.offset(x.w_strides);
        for (int64_t c = 0; c < x.channels; ++c) add(sum, a[c * x.x_strides[4]], b[c * x.w_strides[4]]);
      }
      finish(x, sum, to, filter);
    }
  }
  // All channels of an input pixel, from every output pixel that read it: nobody else writes it.
  static void backward_data(const tw_conv_args &x, const Place &to) {
    for (int64_t channel = 0; channel < x.groups * x.channels; ++channel) {
      const int64_t group = channel / x.channels, first = group * x.filters;
      const T *w = static_cast<const T *>(x.w) + channel % x.channels * x.w_strides[4];
      Sum sum = 0;
      for (int64_t tap = 0; tap < pixels(x.window); ++tap) {
        Place of = place(tap, x.window), at = to;
        of.first = first;
        if (!given(x, to, of, at)) continue;
        const T *a = static_cast<const T *>(x.y) + at.offset(x.y_strides) + first * x.y_strides[4];
        const T *b = w + of.offset(x.w_strides);
        for (int64_t k = 0; k < x.filters; ++k) add(sum, a[k * x.y_strides[4]], b[k * x.w_strides[0]]);
      }
      from_float(sum, static_cast<C *>(x.x) + to.offset(x.x_strides) + channel * x.x_strides[4]);
    }
  }
  // All channels of one place of a filter.
  static void backward_weight(const tw_conv_args &x, const Place &to) {
    const T *from = static_cast<const T *>(x.x) + to.first / x.filters * x.channels * x.x_strides[4];
    const T *of_y = static_cast<const T *>(x.y) + to.first * x.y_strides[4];
    for (int64_t c = 0; c < x.channels; ++c) {
      Sum sum = 0;
      for (int64_t pixel = 0; pixel < x.batch * pixels(x.out); ++pixel) {
        const Place out = place(pixel, x.out);
        Place at = out;
        if (taken(x, out, to, at))
          add(sum, from[at.offset(x.x_strides) + c * x.x_strides[4]], of_y[out.offset(x.y_strides)]);
      }
      from_float(sum, static_cast<C *>(x.w) + to.offset(x.w_strides) + c * x.w_strides[4]);
    }
  }

  // The input pixel that an output pixel reads at a place of the window; false where that is padding.
  static bool taken(const tw_conv_args &x, const Place &out, const Place &window, Place &in) {
    for (int d = 0; d < TW_CONV_SPATIAL; ++d) {
      in.at[d] = out.at[d] * x.stride[d] - x.before[d] + window.at[d] * x.dilation[d];
      if (in.at[d] < 0 || in.at[d] >= x.size[d]) return false;
    }
    return true;
  }
  // The output pixel that read an input pixel there; false where none did.
  static bool given(const tw_conv_args &x, const Place &in, const Place &window, Place &out) {
    for (int d = 0; d < TW_CONV_SPATIAL; ++d) {
      const int64_t steps = in.at[d] + x.before[d] - window.at[d] * x.dilation[d];
      out.at[d] = steps / x.stride[d];
      if (steps < 0 || steps % x.stride[d] || out.at[d] >= x.out[d]) return false;
    }
    return true;
  }

  // D tensors, activation, output type.
  static void finish(const tw_conv_args &x, Sum sum, const Place &to, int64_t channel) {
    constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
    C *y = static_cast<C *>(x.y) + to.offset(x.y_strides) + channel * x.y_strides[4];
    const auto d_at = [&](int t) {
      return static_cast<const D *>(x.d[t])[to.offset(x.d_strides[t]) + channel * x.d_strides[t][4]];
    };
    if constexpr (is_int<C>) {
      double value = double(sum);
      for (int t = 0; t < Config::num_d; ++t) value = multiplies ? value * double(d_at(t)) : value + double(d_at(t));
      from_double(activate_one<Config::epilogue>(value), y);
    } else {
      float value = float(sum);
      for (int t = 0; t < Config::num_d; ++t)
        value = multiplies ? value * to_float(d_at(t)) : value + to_float(d_at(t));
      from_float(activate<Config::epilogue>(splat(value))[0], y);
    }
  }
};

}  // namespace tw
