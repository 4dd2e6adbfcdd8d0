// The plain loops of a convolution: any size, stride, element type and fused work.  A thread makes one element of the
// result after another, neighbours along its channels.  Plain on purpose: it is the floor under every problem the others
// do not take.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct ConvLoopsShape {
  static constexpr int threads = 256;
  static constexpr int64_t most_blocks = 1 << 20;

  // Elements of the result.
  template <class Config> static int64_t elements(const tw_conv_args &x) {
    if (Config::variant == ConvVariant::forward) return x.batch * pixels(x.out) * x.groups * x.filters;
    if (Config::variant == ConvVariant::backward_data) return x.batch * pixels(x.size) * x.groups * x.channels;
    return x.groups * x.filters * pixels(x.window) * x.channels;
  }
  template <class Config> static unsigned blocks(const tw_conv_args &x) {
    const int64_t all = (elements<Config>(x) + threads - 1) / threads;
    return unsigned(all < most_blocks ? all : most_blocks);
  }
};

#ifdef TW_ON_GPU

// Config: A (of the operands), C (of the result), D, variant, epilogue, num_d.
template <class Config> struct ConvLoops {
  using T = typename Config::A;
  using C = typename Config::C;
  using D = typename Config::D;
  using Sum = typename sum_of<T>::type;
  static constexpr ConvVariant variant = Config::variant;

  const tw_conv_args &x;
  TW_GPU explicit ConvLoops(const tw_conv_args &args) : x(args) {}

  // The index of an element of x, w or y: image or filter, a pixel, a channel.
  struct Place {
    long long first, at[TW_CONV_SPATIAL], channel;
    TW_GPU long long offset(const int64_t *strides) const {
      return first * strides[0] + at[0] * strides[1] + at[1] * strides[2] + at[2] * strides[3] + channel * strides[4];
    }
  };
  static TW_GPU Place place(long long number, const int64_t *sizes, long long channels) {
    Place p;
    p.channel = number % channels, number /= channels;
#pragma unroll
    for (int d = TW_CONV_SPATIAL - 1; d >= 0; --d) p.at[d] = number % sizes[d], number /= sizes[d];
    p.first = number;
    return p;
  }

  static TW_GPU void add(Sum &sum, T p, T q) {
    if constexpr (is_integer<T>::value) sum = Sum(uint32_t(sum) + uint32_t(int32_t(p) * int32_t(q)));
    else sum += to_float(p) * to_float(q);
  }
  // The input pixel that an output pixel reads at a place of the window; false where that is padding.
  TW_GPU bool taken(const Place &out, const Place &window, Place &in) const {
    bool inside = true;
#pragma unroll
    for (int d = 0; d < TW_CONV_SPATIAL; ++d) {
      in.at[d] = out.at[d] * x.stride[d] - x.before[d] + window.at[d] * x.dilation[d];
      inside = inside && in.at[d] >= 0 && in.at[d] < x.size[d];
    }
    return inside;
  }
  // The output pixel that read an input pixel there; false where none did.
  TW_GPU bool given(const Place &in, const Place &window, Place &out) const {
    bool inside = true;
#pragma unroll
    for (int d = 0; d < TW_CONV_SPATIAL; ++d) {
      const long long steps = in.at[d] + x.before[d] - window.at[d] * x.dilation[d];
      out.at[d] = steps / x.stride[d];
      inside = inside && steps >= 0 && steps % x.stride[d] == 0 && out.at[d] < x.out[d];
    }
    return inside;
  }

  TW_GPU Sum forward(const Place &to) const {
    Sum sum = 0;
    const long long taps = x.window[0] * x.window[1] * x.window[2];
    for (long long tap = 0; tap < taps; ++tap) {
      Place of = place(tap, x.window, 1), at = to;
      of.first = to.channel, at.channel = to.channel / x.filters * x.channels;
      if (!taken(to, of, at)) continue;
      const T *a = static_cast<const T *>(x.x) + at.offset(x.x_strides);
      const T *b = static_cast<const T *>(x.w) + of.offset(x.w_strides);
      for (long long c = 0; c < x.channels; ++c) add(sum, a[c * x.x_strides[4]], b[c * x.w_strides[4]]);
    }
    return sum;
  }
  TW_GPU Sum backward_data(const Place &to) const {
    Sum sum = 0;
    const long long taps = x.window[0] * x.window[1] * x.window[2], group = to.channel / x.channels;
    for (long long tap = 0; tap < taps; ++tap) {
      Place of = place(tap, x.window, 1), at = to;
      of.first = at.channel = group * x.filters;
      of.channel = to.channel % x.channels;
      if (!given(to, of, at)) continue;
      const T *a = static_cast<const T *>(x.y) + at.offset(x.y_strides);
      const T *b = static_cast<const T *>(x.w) + of.offset(x.w_strides);
      for (long long k = 0; k < x.filters; ++k) add(sum, a[k * x.y_strides[4]], b[k * x.w_strides[0]]);
    }
    return sum;
  }
  TW_GPU Sum backward_weight(const Place &to) const {
    Sum sum = 0;
    const long long all = x.batch * x.out[0] * x.out[1] * x.out[2];
    for (long long pixel = 0; pixel < all; ++pixel) {
      Place out = place(pixel, x.out, 1);
      out.channel = to.first;
      Place at = out;
      at.channel = to.first / x.filters * x.channels + to.channel;
      if (taken(out, to, at))
        add(sum, static_cast<const T *>(x.x)[at.offset(x.x_strides)],
            static_cast<const T *>(x.y)[out.offset(x.y_strides)]);
    }
    return sum;
  }
  // D tensors, activation, output type.
  TW_GPU void finish(Sum sum, const Place &to) const {
    using End = Finish<Config>;
    typename End::Real value = typename End::Real(sum);
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      const D d = static_cast<const D *>(x.d[t])[to.offset(x.d_strides[t])];
      if constexpr (End::exact) value = End::combine(value, double(d));
      else value = End::combine(value, to_float(d));
    }
    round_to(activate<Config::epilogue>(value), static_cast<C *>(x.y)[to.offset(x.y_strides)]);
  }

  TW_GPU void element(long long number) const {
    if constexpr (variant == ConvVariant::forward) {
      const Place to = place(number, x.out, x.groups * x.filters);
      finish(forward(to), to);
    } else if constexpr (variant == ConvVariant::backward_data) {
      const Place to = place(number, x.size, x.groups * x.channels);
      round_to(backward_data(to), static_cast<C *>(x.x)[to.offset(x.x_strides)]);
    } else {
      const Place to = place(number, x.window, x.channels);
      round_to(backward_weight(to), static_cast<C *>(x.w)[to.offset(x.w_strides)]);
    }
  }
};

template <class Config> TW_GPU void conv_loops(const tw_conv_args &x, long long elements) {
  const ConvLoops<Config> loops(x);
  const long long step = (long long)gridDim.x * ConvLoopsShape::threads;
  for (long long i = (long long)blockIdx.x * ConvLoopsShape::threads + threadIdx.x; i < elements; i += step)
    loops.element(i);
}

#endif
}  // namespace tw
