// Convolutions of few channels (images, most of all), as convolutions of many.
//
// forward, backward_weight: x is copied into pixels of 8 channels, with its padding along w, and then seen through a map
// of pixels that overlap: each has the channels of the 8 pixels from it on, 64 in all, and one tap of the window's width
// is left.  backward_data of windows that move pixel by pixel: the taps of a row are columns of one product over y, which
// traverses the rows of taps only; a pixel of x is the sum of what its taps have in neighbouring pixels, and a second
// kernel adds them, in fp32.  Of others: the pixels of x that lie in one stride are columns, and the traversal's window is what
// any of them meets.
#pragma once
#include <tilewright/cuda/conv/tma_ws/shape.h>

namespace tw {

struct Folded {
  static constexpr int threads = 256, pixel = 8, width = 64, most_columns = 256;
};

template <bool Accumulators, class Config> struct folded_result {
  using type = typename Config::C;
};
template <class Config> struct folded_result<true, Config> {
  using type = float;
};
// The convolution that the matrix product is of.
template <class Config> struct FoldedInto : Config {
  static constexpr auto variant =
      Config::variant == ConvVariant::backward_data ? ConvVariant::forward : Config::variant;
  using C = typename folded_result<Config::variant == ConvVariant::backward_data, Config>::type;
  static constexpr bool merged = false;
  static_assert(Config::variant != ConvVariant::backward_data || !Config::tma_store, "sums leave as floats");
};

// Spatial arrays are w, h, d.
struct FoldArgs {
  const void *from;
  void *to;
  long long count;
  Divider size[3];                                  // of what is written: pixels, or taps
  Divider lines, columns;                           // of weights, as they are written
  long long apart[4];                               // pixels of x along w, h, d, then images
  long long filter_apart, tap_apart, weight_apart;  // of w: filters, taps, channels
  long long channel_apart;                          // of x
  int channels, filters, inside, before, window[3];
  // backward_data
  Divider stride[3];
  int folded[3], first[3], dilation[3], padding[3],
      row;      // sizes of the accumulators, where the traversal begins, their columns
  int by_taps;  // columns are taps of a row, not pixels of a stride
};

#ifdef TW_ON_GPU

struct FoldPlace {
  int w, h, d, image;
  TW_GPU FoldPlace(const Divider (&size)[3], int number) {
    const int line = size[0].quotient(number), plane = size[1].quotient(line);
    image = size[2].quotient(plane);
    w = number - line * int(size[0].by), h = line - plane * int(size[1].by), d = plane - image * int(size[2].by);
  }
};

// x into pixels of 8 channels: a pixel a thread.
template <class T> TW_GPU void fold_pixels(const FoldArgs &x, int at) {
  const FoldPlace p(x.size, at);
  const int w = p.w - x.before;
  const T *from =
      static_cast<const T *>(x.from) + p.image * x.apart[3] + p.d * x.apart[2] + p.h * x.apart[1] + w * x.apart[0];
  Some<T, Folded::pixel> pixel;
#pragma unroll
  for (int c = 0; c < Folded::pixel; ++c)
    pixel.v[c] = w >= 0 && w < x.inside && c < x.channels ? from[c * x.channel_apart] : T{};
  static_cast<Some<T, Folded::pixel> *>(x.to)[at] = pixel;
}
// Results of backward_data out of the accumulators of their taps: a pixel a thread.
template <class T> TW_GPU void unfold_pixels(const FoldArgs &x, int at) {
  const FoldPlace p(x.size, at);
  const int q[3] = {x.stride[0].quotient(p.w), x.stride[1].quotient(p.h), x.stride[2].quotient(p.d)};
  const int rest[3] = {p.w - q[0] * int(x.stride[0].by), p.h - q[1] * int(x.stride[1].by),
                       p.d - q[2] * int(x.stride[2].by)};
  const long long line = (((long long)p.image * x.folded[2] + q[2]) * x.folded[1] + q[1]) * x.folded[0];
  const int column = ((rest[2] * int(x.stride[1].by) + rest[1]) * int(x.stride[0].by) + rest[0]) * x.channels;
  const float *from = static_cast<const float *>(x.from) + line * x.row + column;
  float accum[Folded::pixel] = {};
#pragma unroll 4
  for (int tap = 0; tap < (x.by_taps ? x.window[0] : 1); ++tap, from += x.channels) {
    const int there = x.by_taps ? p.w + x.padding[0] - tap * x.dilation[0] : q[0];
    if (there < 0 || there >= x.folded[0]) continue;
#pragma unroll
    for (int c = 0; c < Folded::pixel; ++c)
      if (c < x.channels) accum[c] += from[(long long)there * x.row + c];
  }
  T *to = static_cast<T *>(x.to) + p.image * x.apart[3] + p.d * x.apart[2] + p.h * x.apart[1] + p.w * x.apart[0];
#pragma unroll
  for (int c = 0; c < Folded::pixel; ++c)
    if (c < x.channels) round_to(accum[c], to[c * x.channel_apart]);
}
// The weights of a tap's row, 64 columns; and out of their gradient, the other way.
template <class T> TW_GPU void fold_weights(const FoldArgs &x, int at) {
  const int line = at / Folded::width, column = at % Folded::width, tap = column / Folded::pixel,
            c = column % Folded::pixel;
  const int filter = x.lines.quotient(line), row = line - filter * int(x.lines.by);
  const bool there = tap < x.window[0] && c < x.channels;
  const T *from = static_cast<const T *>(x.from);
  static_cast<T *>(x.to)[at] =
      there ? from[filter * x.filter_apart + (row * x.window[0] + tap) * x.tap_apart + c * x.weight_apart] : T{};
}
template <class T> TW_GPU void unfold_weights(const FoldArgs &x, int at) {
  const int place = x.columns.quotient(at), c = at - place * x.channels, line = x.size[0].quotient(place),
            tap = place - line * x.window[0];
  const int filter = x.lines.quotient(line), row = line - filter * int(x.lines.by);
  static_cast<T *>(x.to)[filter * x.filter_apart + (row * x.window[0] + tap) * x.tap_apart + c * x.weight_apart] =
      static_cast<const T *>(x.from)[(long long)line * Folded::width + tap * Folded::pixel + c];
}
// backward_data: for every column and channel, at every tap of the traversal, the filters.
template <class T> TW_GPU void fold_filters(const FoldArgs &x, int at) {
  const int place = x.columns.quotient(at), filter = at - place * int(x.columns.by);  // filters, filled up with zeros
  const FoldPlace t(x.size, place);                                                   // its image is the line
  int left = t.image;
  const int c = left % x.channels;
  left /= x.channels;
  int tap = 0, scale = 1;
  if (x.by_taps) tap = left % x.window[0], left /= x.window[0], scale = x.window[0];
  const int taken[3] = {t.w, t.h, t.d};
  bool there = true;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (i == 0 && x.by_taps) continue;
    const int stride = int(x.stride[i].by), rest = left % stride;
    left /= stride;
    const int steps = rest + x.padding[i] - (x.first[i] + taken[i]) * stride, number = steps / x.dilation[i];
    there = there && steps >= 0 && number * x.dilation[i] == steps && number < x.window[i];
    tap += number * scale;
    scale *= x.window[i];
  }
  there = there && left == 0 && filter < x.filters;
  static_cast<T *>(x.to)[at] =
      there ? static_cast<const T *>(x.from)[filter * x.filter_apart + tap * x.tap_apart + c * x.weight_apart] : T{};
}

#endif
}  // namespace tw
