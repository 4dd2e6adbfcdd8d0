// Which pixels a convolution's kernel traverses and which taps it takes on the way: the host's part of what
// conv/tma_ws/shape.h explains.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/cuda/conv/tma_ws/shape.h>
#include <tilewright/cuda/gemm/host_common.h>

namespace tw::cuda {

// One dimension of a class of pixels of x: its first pixel, and where taps of its residue read y.
struct ClassAxis {
  int64_t stride, dilation, before, window;

  // Whether a tap meets pixels of x that lie `rest` behind a multiple of the stride.
  bool meets(int64_t tap, int64_t rest) const { return (rest + before - tap * dilation) % stride == 0; }
  // Which pixel of y it reads for the first of them.
  int64_t reads(int64_t tap, int64_t rest) const { return (rest + before - tap * dilation) / stride; }
};

// A class of pixels of x: those whose coordinates leave these rests by the strides.  They read the same taps.
struct PixelClass {
  int64_t rest[3];
  int taps;
};

// One axis of backward_data: how many classes it has, and the lowest pixel of y that any of them reads.
inline int64_t lay_axis_of_classes(const tw_conv_args &x, const ClassAxis &axis, int i, ConvWsArgs &t,
                                   int64_t &lowest) {
  const int64_t count = axis.stride < x.size[2 - i] ? axis.stride : x.size[2 - i];
  bool any = false;
  for (int64_t rest = 0; rest < count; ++rest)
    for (int64_t tap = 0; tap < axis.window; ++tap) {
      if (!axis.meets(tap, rest)) continue;
      const int64_t at = axis.reads(tap, rest);
      lowest = any && lowest < at ? lowest : at, any = true;
    }
  if (!any) lowest = 0;
  t.grid.size[i] = divider(ceil_div(x.size[2 - i], axis.stride)), t.grid.step[i] = 1, t.grid.first[i] = int(lowest);
  t.stride[i] = int(axis.stride);
  return count;
}

// The classes with most taps first, so that the last ones to be done are short.
inline void sort_classes(const ClassAxis (&axes)[3], const int64_t (&count)[3], int classes, PixelClass *sorted) {
  for (int number = 0; number < classes; ++number) {
    PixelClass &one = sorted[number];
    int64_t left = number;
    one.taps = 1;
    for (int i = 0; i < 3; ++i) {
      one.rest[i] = left % count[i], left /= count[i];
      int met = 0;
      for (int64_t tap = 0; tap < axes[i].window; ++tap) met += axes[i].meets(tap, one.rest[i]);
      one.taps *= met;
    }
    for (int at = number; at > 0 && sorted[at].taps > sorted[at - 1].taps; --at) {
      const PixelClass swapped = sorted[at];
      sorted[at] = sorted[at - 1], sorted[at - 1] = swapped;
    }
  }
}

// The taps of one class, behind those that were taken before; one that reads nothing gets a tap of no number.
inline void lay_taps(const tw_conv_args &x, const ClassAxis (&axes)[3], const int64_t (&lowest)[3],
                     const PixelClass &one, ConvWsArgs &t, int &taken) {
  int64_t tap[3];
  for (tap[2] = 0; tap[2] < x.window[0]; ++tap[2])
    for (tap[1] = 0; tap[1] < x.window[1]; ++tap[1])
      for (tap[0] = 0; tap[0] < x.window[2]; ++tap[0]) {
        ConvTap made{};
        bool met = true;
        for (int i = 0; i < 3; ++i) {
          met = met && axes[i].meets(tap[i], one.rest[i]);
          if (met) made.by[i] = uint8_t(axes[i].reads(tap[i], one.rest[i]) - lowest[i]);
        }
        made.number = uint16_t((tap[2] * x.window[1] + tap[1]) * x.window[2] + tap[0]);
        if (met) t.taps[taken++] = made;
      }
  if (!one.taps) t.taps[taken++].number = uint16_t(pixels(x.window));
}

// backward_data: the traversal of y that every class makes, and each class's taps.  False: there are more than fit.
inline bool lay_classes(const tw_conv_args &x, ConvWsArgs &t) {
  int64_t most = 1, lowest[3] = {}, count[3];
  ClassAxis axes[3];
  for (int i = 0; i < 3; ++i) {
    axes[i] = {x.stride[2 - i], x.dilation[2 - i], x.before[2 - i], x.window[2 - i]};
    count[i] = lay_axis_of_classes(x, axes[i], i, t, lowest[i]);
    most *= count[i];
  }
  if (most > most_classes) return false;
  t.classes = int(most);
  PixelClass classes[most_classes];
  sort_classes(axes, count, t.classes, classes);
  int taken = 0, longest = 0;
  for (int number = 0; number < t.classes; ++number) {
    const PixelClass &one = classes[number];
    for (int i = 0; i < 3; ++i) t.rest[number][i] = uint8_t(one.rest[i]);
    t.first_tap[number] = uint16_t(taken);
    if (one.taps > longest) longest = one.taps;
    lay_taps(x, axes, lowest, one, t, taken);
  }
  t.first_tap[t.classes] = uint16_t(taken);
  t.order.steps = longest ? longest * t.blocks : 1;
  return true;
}

// forward, backward_weight: a traversal of x, a pixel for each of y.
inline void lay_pixels(const tw_conv_args &x, ConvWsArgs &t) {
  for (int i = 0; i < 3; ++i)
    t.grid.size[i] = divider(x.out[2 - i]), t.grid.step[i] = int(x.stride[2 - i]),
    t.grid.first[i] = -int(x.before[2 - i]);
  int taken = 0;
  for (int64_t d = 0; d < x.window[0]; ++d)
    for (int64_t h = 0; h < x.window[1]; ++h)
      for (int64_t w = 0; w < x.window[2]; ++w, ++taken)
        t.taps[taken] = {uint16_t(taken),
                         {uint8_t(w * x.dilation[2]), uint8_t(h * x.dilation[1]), uint8_t(d * x.dilation[0])}};
  t.classes = 1, t.first_tap[1] = uint16_t(taken);
}

// The arguments that follow from sizes alone.  limits.h says what TMA can traverse; false is what the
// arguments have no room for.
template <class Config> bool lay_traversal(const tw_conv_args &x, ConvWsArgs &t) {
  using S = ConvWs<Config>;
  constexpr bool data = S::variant == ConvVariant::backward_data, weight = S::variant == ConvVariant::backward_weight;
  const int64_t taps = x.window[0] * x.window[1] * x.window[2];
  if (taps > most_taps) return false;
  t.blocks = int(ceil_div(weight ? x.channels : data ? x.filters : x.channels, S::BK));
  if (!data) lay_pixels(x, t);
  else if (!lay_classes(x, t)) return false;
  t.groups = int(x.groups), t.taps_in_all = int(taps);
  t.pixels_of_a_group = int(data ? x.filters : x.channels);
  t.lines_of_a_group = int(x.filters);
  int64_t traversed = x.batch;
  for (int i = 0; i < 3; ++i) traversed *= t.grid.size[i].by;
  const int64_t columns = weight ? taps * t.blocks * 64 : data ? x.channels : x.filters;
  t.m = int(weight ? x.filters : traversed), t.n = int(columns);
  t.order.batch = t.groups * t.classes;
  if (weight) t.order.steps = int(ceil_div(traversed, 64));
  else if (!data) t.order.steps = int(taps * t.blocks);
  t.order.tiles_m = int(ceil_div(t.m, S::BM * S::ClusterM)), t.order.tiles_n = int(ceil_div(t.n, S::BN * S::ClusterN));
  t.order.group = 2048 / (S::BM * S::ClusterM);
  return true;
}

}  // namespace tw::cuda
