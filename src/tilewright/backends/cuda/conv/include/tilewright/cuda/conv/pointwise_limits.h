// Windows of one pixel: the matrix product that such a convolution is.
#pragma once
#include <tilewright/cuda/conv/limits.h>
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace pointwise {

TW_CONV_RULE(not_one_pixel, "nv-pointwise", "the filter is not 1x1 with stride 1 and no padding")
TW_CONV_RULE(pixels_uneven, "nv-dense", "the pixels of x or y are not evenly spaced in memory")
TW_CONV_RULE(pixels_overlap, "nv-dense", "pixels or filters overlap")
TW_CONV_RULE(planes_apart, "nv-planes", "the pixels of a channel are not contiguous")
TW_CONV_RULE(filters_apart, "nv-planes", "the channels of w are not contiguous")
TW_CONV_RULE(several_images, "nv-planes", "several images, whose groups or weight gradients are not one matrix product")
TW_CONV_RULE(full_d, "nv-planes", "D tensors as large as y need channels-last memory")
TW_CONV_RULE(channels_overlap, "nv-dense", "channels or filters overlap")
TW_CONV_RULE(images_backwards, "nv-dense", "the stride of images is negative")

// Whether each pixel of y is made of the one of x at its place.
inline bool one_pixel(const Conv &c) {
  for (int axis = 0; axis < 3; ++axis)
    if (c.out[axis] != c.size[axis] || c.window[axis] != 1 || c.before[axis] ||
        (c.stride[axis] != 1 && c.size[axis] != 1))
      return false;
  return true;
}

// Why a problem of channels-first memory is no matrix product as it lies.
inline const Rule *broken_planes(const Conv &c) {
  const ConvProblem &p = c.p;
  if (p.x_2 != 1 || p.y_2 != 1 || !even_x(c, 1) || !even_y(c, 1)) return &planes_apart;
  if (p.w_channel != 1) return &filters_apart;
  if (p.batch != 1 && (p.groups > 1 || p.variant == backward_weight)) return &several_images;
  if (p.full_d) return &full_d;
  if (smaller(p.x_channel, p.y_channel) < c.size.product() || p.w_filter < c.group_channels) return &channels_overlap;
  return p.batch > 1 && smaller(p.x_image, p.y_image) < 0 ? &images_backwards : nullptr;
}

inline const Rule *broken_layout(const Conv &c, bool planes) {
  const ConvProblem &p = c.p;
  if (!one_pixel(c)) return &not_one_pixel;
  if (planes) return broken_planes(c);
  if (!c.channels_last()) return &channels_apart;
  if (!even_x(c, p.batch) || !even_y(c, p.batch)) return &pixels_uneven;
  const bool overlap = p.x_2 < c.group_channels || p.y_2 < c.group_filters || p.w_filter < c.group_channels;
  return overlap ? &pixels_overlap : nullptr;
}

// An operand of the product, in elements: from line to line, and from matrix to matrix (0 where all have one).
struct Lines {
  int64_t apart, batch;
};

// The product; of the operands that are named, the batch counts for its alignment.
inline GemmProblem product(const Conv &c, bool planes, bool of_a, bool of_b, bool of_e) {
  const ConvProblem &p = c.p;
  const bool images = planes && p.groups == 1, weight = p.variant == backward_weight;
  const Lines x{planes ? p.x_channel : p.x_2, images ? p.x_image : c.group_channels * p.x_channel};
  const Lines y{planes ? p.y_channel : p.y_2, images ? p.y_image : c.group_filters * p.y_channel};
  const Lines w{p.w_filter, images ? 0 : c.group_filters * p.w_filter};
  const int64_t pixels = (planes ? 1 : p.batch) * (p.variant == backward_data ? c.size : c.out).product();
  GemmProblem g{};
  g.batch = planes ? p.batch * p.groups : p.groups;
  Lines a{}, b{}, e{};
  if (weight) {
    g.m = c.group_filters, g.n = c.group_channels, g.k = pixels, a = y, b = x, e = w;
    g.a_rows = planes, g.b_rows = !planes;
  } else {
    const bool forwards = p.variant == forward;
    const int64_t inner = forwards ? c.group_channels : c.group_filters;
    const int64_t outer = forwards ? c.group_filters : c.group_channels;
    g.m = planes ? outer : pixels, g.n = planes ? pixels : outer, g.k = inner;
    const Lines read = forwards ? x : y;
    a = planes ? w : read, b = planes ? read : w, e = forwards ? y : x;
    g.a_rows = planes ? forwards : 1, g.b_rows = planes ? 1 : !forwards;
  }
  const bool whole = g.batch == 1 || !((of_a && odd_bytes(a.batch, p.size)) || (of_b && odd_bytes(b.batch, p.size)) ||
                                       (of_e && odd_bytes(e.batch, p.size_out)));
  g.a_stride = a.apart ? a.apart : larger(1, g.a_rows ? g.k : g.m);
  g.b_stride = b.apart ? b.apart : larger(1, g.b_rows ? g.n : g.k);
  g.c_stride = e.apart ? e.apart : larger(1, g.n);
  set_aligned(g, p.aligned && whole, p.aligned && whole, p.aligned && whole);
  g.broadcast_a = a.batch == 0, g.num_d = p.num_d, g.plain = p.plain;
  g.type_a = g.type_b = p.size == 4 ? fp32 : p.size == 1 ? int8 : bf16;
  g.size_a = g.size_b = p.size, g.size_c = p.size_out, g.size_d = p.size_d;
  return g;
}

}  // namespace pointwise
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
