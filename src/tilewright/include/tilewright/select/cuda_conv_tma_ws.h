// tma_ws of convolutions: the copy engine walks over pixels and feeds wgmma.
#pragma once
#include <tilewright/select/cuda_conv.h>
#include <tilewright/select/cuda_gemm_tma_ws.h>

namespace tw {
namespace select {
namespace cuda_conv {
namespace tma_ws {

// clang-format off
#define TW_SELECT_CUDA_CONV_TMA_WS(X) \
  X(tile_m) X(tile_n) X(tile_k) X(cluster_m) X(cluster_n) X(pingpong) X(dealing) X(tma_store) X(merged)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_TMA_WS)

constexpr int64_t kMostStride = 8, kMostTaps = 343, kMostClasses = 27;  // cuda/conv/tma_ws/shape.h

// Rows of results may lie anywhere: backward_data of strides over 1 has such.
inline bool by_rows(const Schedule &s, const Conv &c) {
  return !s.tma_store && s.dealing == cuda_gemm::tiles && c.p.variant == backward_data && c.p.size_out == 2;
}

// What the copy engine reads, and what it writes.
inline bool aligned(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  bool broken = !p.aligned;
  const auto read = [&](int64_t stride) { broken = broken || odd_bytes(stride, p.size) || stride < 1; };
  const auto written = [&](int64_t stride) { broken = broken || odd_bytes(stride, p.size_out); };
  if (p.variant != backward_data)
    for (int64_t one : {p.x_image, p.x_0, p.x_1, p.x_2}) read(one);
  if (p.variant != forward)
    for (int64_t one : {p.y_image, p.y_0, p.y_1, p.y_2}) read(one);
  if (p.variant != backward_weight && !s.merged) read(p.w_filter), read(p.w_2);
  const int64_t merged = merged_groups(c, s.merged, s.tile_k);
  const bool apart = p.variant == backward_weight && (merged > 1 || odd_columns(c)), rows = by_rows(s, c);
  if (!(s.tma_store && !apart) && !rows) return !broken;
  if (p.variant == forward) written(p.y_2), written(c.group_filters * merged);
  if (p.variant == backward_data) {
    written(p.x_2), written(c.group_channels * merged);
    if (rows)
      for (int64_t one : {p.x_image, p.x_0, p.x_1}) written(one);
  }
  if (p.variant == backward_weight) written(p.w_filter);
  return !broken;
}

inline ConvRule broken_layout(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  if (!c.channels_last()) return ConvRule::nv_channels_last;
  // Taps of one filter, as pixels of one image.
  if (!dense_pixels(p.w_filter, p.w_0, p.w_1, p.w_2, 1, c.window)) return ConvRule::nv_dense;
  const bool by_classes = !s.tma_store && s.dealing == cuda_gemm::tiles;
  if (p.variant != backward_data && !dense_pixels(p.y_image, p.y_0, p.y_1, p.y_2, p.batch, c.out))
    return ConvRule::nv_dense;
  if (p.variant == backward_data && !by_classes && !dense_pixels(p.x_image, p.x_0, p.x_1, p.x_2, p.batch, c.size))
    return ConvRule::nv_dense;
  return aligned(s, c) ? ConvRule::serves : ConvRule::nv_alignment;
}

inline bool broken_groups(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const int64_t merged = merged_groups(c, s.merged, s.tile_k);
  if (merged == 0) return true;
  const int64_t deep = p.variant == backward_data ? c.group_filters : c.group_channels;
  if (p.variant != backward_weight && p.groups > merged && deep * merged % s.tile_k) return true;
  // A walk may begin at whole 16 bytes of channels only: an H200 stops at others.
  if (p.variant == backward_weight && p.groups > merged &&
      (odd_bytes(c.group_channels * merged, 2) || odd_bytes(c.group_filters * merged, 2)))
    return true;
  return merged > 1 && Wide(p.filters) * c.taps * c.group_channels * merged >= kMost;
}

// Of an axis that is walked over: first pixel, how far the last lies behind the tensor's, how far taps move it, and how
// many there are.
struct Walk {
  int64_t first, last, far, count;
};

inline Walk walk_of(const Conv &c, int axis) {
  const int64_t size = c.size[axis], out = c.out[axis], stride = c.stride[axis], before = c.before[axis];
  const int64_t window = c.window[axis], dilation = c.dilation[axis];
  if (c.p.variant != backward_data)
    return {-before, -before + (out - 1) * stride - (size - 1), (window - 1) * dilation, out};
  int64_t least = 0, most = 0;
  bool any = false;
  for (int64_t rest = 0; rest < smaller(stride, size); ++rest)
    for (int64_t tap = 0; tap < window; ++tap) {
      const int64_t place = rest + before - tap * dilation;
      if (place % stride) continue;
      least = any ? smaller(least, place / stride) : place / stride;
      most = any ? larger(most, place / stride) : place / stride;
      any = true;
    }
  const int64_t pixels = ceil_div(size, stride);
  return {least, least + pixels - 1 - (out - 1), most - least, pixels};
}

// cuda/conv/traversal.h.
inline bool broken_walk(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  if (p.batch == 0 || c.taps > kMostTaps) return true;
  for (int axis = 0; axis < 3; ++axis)
    if (c.stride[axis] > kMostStride) return true;
  const int64_t reach = p.dims == 3 ? 16 : 128, farthest = p.dims == 3 ? 31 : 255;
  int64_t classes = 1;
  Wide pixels = p.batch;
  for (int axis = 0; axis < 3; ++axis) {
    const Walk walked = walk_of(c, axis);
    if (walked.far > farthest || walked.first < -reach || walked.first >= reach || walked.last < -reach ||
        walked.last >= reach)
      return true;
    if (data) classes *= smaller(c.stride[axis], c.size[axis]);
    pixels *= walked.count;
  }
  if (classes > kMostClasses || (classes > 1 && (s.tma_store || s.dealing != cuda_gemm::tiles))) return true;
  const Wide all = Wide(p.batch) * (data ? c.size : c.out).product();
  return pixels >= kMost / 2 || all >= kMost / 2 || larger(p.channels, p.filters) >= kMost;
}

inline ConvRule limits(const Schedule &s, const Asked &x) {
  if (x.c.p.batch == 0 && x.c.p.variant != backward_weight) return ConvRule::serves;
  const ConvRule layout = broken_layout(s, x.c);
  if (layout != ConvRule::serves) return layout;
  if (broken_groups(s, x.c)) return ConvRule::nv_groups;
  return broken_walk(s, x.c) ? ConvRule::nv_walk : ConvRule::serves;
}

// The matrix product that a direction is (cuda/conv/tma_ws/shape.h).
inline GemmProblem product(const Schedule &s, const Conv &c, int64_t merged) {
  const ConvProblem &p = c.p;
  const int64_t channels = c.group_channels * merged, filters = c.group_filters * merged;
  int64_t m, n, k, groups = p.groups / merged;
  if (p.variant == forward) {
    m = p.batch * c.out.product(), n = filters, k = c.taps * round_up(channels, s.tile_k);
  } else if (p.variant == backward_data) {  // classes of pixels share the taps
    int64_t classes = 1;
    for (int axis = 0; axis < 3; ++axis) classes *= smaller(c.stride[axis], c.size[axis]);
    m = p.batch * c.size.product() / classes, n = channels;
    k = round_up(c.taps * round_up(filters, s.tile_k) / classes, s.tile_k), groups *= classes;
  } else {
    m = filters, n = c.taps * round_up(channels, 64), k = p.batch * c.out.product();
  }
  GemmProblem g{};
  g.m = larger(1, m), g.n = n, g.k = larger(1, k), g.batch = groups;
  g.a_stride = round_up(p.variant == backward_weight ? g.m : g.k, 64);
  g.b_stride = round_up(p.variant == forward ? g.k : g.n, 64), g.c_stride = larger(1, n);
  g.num_d = p.num_d, g.aligned = 1, g.type_a = g.type_b = bf16, g.plain = p.plain;
  g.size_a = g.size_b = p.size, g.size_c = p.size_out, g.size_d = p.size_d;
  g.a_rows = p.variant != backward_weight, g.b_rows = p.variant != forward;
  return g;
}

// Bytes: of x only the pixels that some tap meets, where it is read.
inline double moved(const Conv &c) {
  if (c.p.variant == backward_data) return c.moved;
  double met = 1.0;
  for (int axis = 0; axis < 3; ++axis) met *= faster(1.0, double(c.window[axis]) / double(c.stride[axis]));
  return c.moved - (1.0 - met) * c.x_elements() * double(c.p.size);
}

// The product, with the convolution's own bytes, or the walk over its pixels, which come one by one.
inline double seconds(const Schedule &s, const Asked &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  if (p.batch == 0) return r.start;
  constexpr double short_walk = 1.2, odd_pixel = 1.3, beside = 0.3, ahead = 0.85, streamed = 1.15;
  const int64_t merged = larger(1, merged_groups(c, s.merged, s.tile_k));
  const bool weight = p.variant == backward_weight;
  const GemmProblem g = product(s, c, merged);
  const cuda_gemm::Arch arch{x.arch.compute_units, x.arch.scratch_bytes};
  const cuda_gemm::Asked asked{g, moved(c), r.gemm, arch, x.host};
  const cuda_gemm::tma_ws::Schedule twin{s.tile_m,    s.tile_n,    s.tile_k,
                                         s.cluster_m, s.cluster_n, s.pingpong,
                                         0,           s.dealing,   by_rows(s, c) ? 1 : s.tma_store};
  const double steps = cuda_gemm::tma_ws::work(twin, cuda_gemm::tma_ws::view(twin, g), asked).steps;
  // The copy engine delivers pixel by pixel, whatever they hold.
  const double walked = weight ? double(s.tile_n) / double(s.cluster_m) : double(s.tile_m) / double(s.cluster_n);
  double pixel = (p.dims == 3 ? r.pixel_3 : p.dims == 2 ? r.pixel_2 : r.pixel_1) * (s.tile_m < 256 ? short_walk : 1.0);
  if ((p.variant == backward_data ? p.filters : p.channels) % 16) pixel *= odd_pixel;
  // Rows of weights that end before their 128 bytes do, or the copy that fills them up.
  const double rows = steps * double(s.tile_n);
  const bool ends = !weight && !s.merged && c.group_channels % 64 != 0;
  const double filled = ends && rows >= 600 ? r.add_start : 0.0, early = ends && rows < 600 ? rows * r.short_row : 0.0;
  const double walk = r.start + r.band_fill + steps * walked * pixel + early;
  const bool apart = merged > 1 || (weight && odd_columns(c) && !ragged(c));
  const double copied = apart ? 2 * double(Wide(p.filters) * c.taps * (c.group_channels * merged) * p.size) : 0.0;
  double product_time = cuda_gemm::tma_ws::seconds_with(twin, asked, apart, copied);
  if (p.variant == forward) product_time = r.start + ahead * (product_time - r.start);
  const double longer = weight && s.dealing == cuda_gemm::stream_k ? streamed : 1.0;
  const double most = slower(product_time, walk), least = faster(product_time, walk);
  return (most + beside * (least - r.start)) * longer + filled;
}

}  // namespace tma_ws
}  // namespace cuda_conv
}  // namespace select
}  // namespace tw
