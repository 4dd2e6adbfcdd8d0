// Convolutions of one pixel's window: GEMM's kernels on the matrix product that they are.
#pragma once
#include <tilewright/select/cuda_conv.h>
#include <tilewright/select/cuda_gemm_multistage.h>
#include <tilewright/select/cuda_gemm_skinny.h>
#include <tilewright/select/cuda_gemm_tma_ws.h>

namespace tw {
namespace select {
namespace cuda_conv {
namespace pointwise {

// Whether each pixel of y is made of the one of x at its place.
inline bool one_pixel(const Conv &c) {
  for (int axis = 0; axis < 3; ++axis)
    if (c.out[axis] != c.size[axis] || c.window[axis] != 1 || c.before[axis] ||
        (c.stride[axis] != 1 && c.size[axis] != 1))
      return false;
  return true;
}

// Why a problem of channels-first memory is no matrix product as it lies.
inline ConvRule broken_planes(const Conv &c) {
  const ConvProblem &p = c.p;
  if (p.x_2 != 1 || p.y_2 != 1 || !dense_pixels(p.x_image, p.x_0, p.x_1, p.x_2, 1, c.size) ||
      !dense_pixels(p.y_image, p.y_0, p.y_1, p.y_2, 1, c.out))
    return ConvRule::nv_planes;
  if (p.w_channel != 1) return ConvRule::nv_planes;
  if (p.batch != 1 && (p.groups > 1 || p.variant == backward_weight)) return ConvRule::nv_planes;
  if (p.full_d) return ConvRule::nv_planes;
  if (smaller(p.x_channel, p.y_channel) < c.size.product() || p.w_filter < c.group_channels) return ConvRule::nv_dense;
  return p.batch > 1 && smaller(p.x_image, p.y_image) < 0 ? ConvRule::nv_dense : ConvRule::serves;
}

inline ConvRule broken_layout(const Conv &c, bool planes) {
  const ConvProblem &p = c.p;
  if (!one_pixel(c)) return ConvRule::nv_pointwise;
  if (planes) return broken_planes(c);
  if (!c.channels_last()) return ConvRule::nv_channels_last;
  if (!dense_pixels(p.x_image, p.x_0, p.x_1, p.x_2, p.batch, c.size) ||
      !dense_pixels(p.y_image, p.y_0, p.y_1, p.y_2, p.batch, c.out))
    return ConvRule::nv_dense;
  const bool overlap = p.x_2 < c.group_channels || p.y_2 < c.group_filters || p.w_filter < c.group_channels;
  return overlap ? ConvRule::nv_dense : ConvRule::serves;
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
  g.broadcast_a = a.batch == 0, g.aligned = p.aligned && whole, g.num_d = p.num_d, g.plain = p.plain;
  g.type_a = g.type_b = p.size == 4 ? fp32 : p.size == 1 ? int8 : bf16;
  g.size_a = g.size_b = p.size, g.size_c = p.size_out, g.size_d = p.size_d;
  return g;
}

inline ConvRule as_conv(GemmRule rule) {
  switch (rule) {
    case GemmRule::serves:
      return ConvRule::serves;
    case GemmRule::nv_empty_k:
      return ConvRule::nv_empty_k;
    case GemmRule::nv_size:
      return ConvRule::nv_size;
    case GemmRule::nv_alignment:
      return ConvRule::nv_alignment;
    case GemmRule::nv_cluster_k:
      return ConvRule::nv_cluster_k;
    case GemmRule::nv_skinny_size:
      return ConvRule::nv_skinny_size;
    case GemmRule::nv_skinny_k:
      return ConvRule::nv_skinny_k;
    default:
      return ConvRule::undecided;
  }
}

// GEMM's estimate, in the measure of the kernels beside it.
inline double in_measure(const Conv &c, const Rates &r, bool planes, double of_gemm) {
  const double ahead = c.p.variant == forward && !planes ? 0.85 : 1.0;
  return r.start + ahead * (of_gemm - r.start);
}

// A question to GEMM: its problem lives as long as this.
struct Gemm {
  GemmProblem p;
  cuda_gemm::Arch arch;
  cuda_gemm::Asked asked;
  Gemm(const Asked &x, const GemmProblem &product)
      : p(product), arch{x.arch.compute_units, x.arch.scratch_bytes}, asked{p, x.c.moved, x.rate.gemm, arch, x.host} {}
};

namespace tma_ws {

// clang-format off
#define TW_SELECT_CUDA_CONV_POINTWISE_TMA_WS(X) \
  X(tile_m) X(tile_n) X(tile_k) X(cluster_m) X(cluster_n) X(pingpong) X(turned) X(dealing) X(tma_store) X(planes)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_POINTWISE_TMA_WS)

inline cuda_gemm::tma_ws::Schedule twin(const Schedule &s) {
  return {s.tile_m, s.tile_n, s.tile_k, s.cluster_m, s.cluster_n, s.pingpong, s.turned, s.dealing, s.tma_store};
}

inline ConvRule limits(const Schedule &s, const Asked &x) {
  if (x.c.p.batch == 0) return ConvRule::undecided;
  const ConvRule layout = broken_layout(x.c, s.planes);
  if (layout != ConvRule::serves) return layout;
  const Gemm gemm(x, product(x.c, s.planes, true, true, true));
  return as_conv(cuda_gemm::tma_ws::limits(twin(s), gemm.asked));
}

// Seconds of the rows that a block asks for in a step, on average: k or lines that are no whole 64s end early.
inline double rows(const Rates &r, bool along_k, int64_t tile, int64_t deep, int64_t lines, int64_t k, int64_t parts) {
  const double count = along_k ? double(tile) : double(64 * ceil_div(smaller(tile, lines), 64));
  const double ends = along_k ? double(k % deep > 0 ? tile : 0) / double(ceil_div(k, deep))
                              : double(lines % 64 > 0 ? 64 : 0) / double(ceil_div(lines, tile));
  return (count * r.pointwise_row + ends * r.pointwise_short_row) / double(parts);
}

inline double seconds(const Schedule &s, const Asked &x) {
  const Rates &r = x.rate;
  if (x.c.p.batch == 0) return r.start;
  const Gemm gemm(x, product(x.c, s.planes, true, true, true));
  const GemmProblem &p = gemm.p;
  const cuda_gemm::tma_ws::Schedule one = twin(s);
  const double whole = in_measure(x.c, r, s.planes, cuda_gemm::tma_ws::seconds(one, gemm.asked));
  const double steps = cuda_gemm::tma_ws::work(one, cuda_gemm::tma_ws::view(one, p), gemm.asked).steps;
  const bool apart = s.dealing == cuda_gemm::cluster_k;
  const double asked = rows(r, p.a_rows, s.tile_m, s.tile_k, p.m, p.k, apart ? 1 : s.cluster_n) +
                       rows(r, !p.b_rows, s.tile_n, s.tile_k, p.n, p.k, apart ? 1 : s.cluster_m);
  const double walked = r.start + r.pointwise_first_rows + steps * asked;
  return slower(whole, walked) + 0.1 * (faster(whole, walked) - r.start);
}

}  // namespace tma_ws

namespace skinny {

#define TW_SELECT_CUDA_CONV_POINTWISE_SKINNY(X) X(tile_m) X(tile_n) X(warps) X(few_columns) X(planes)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_POINTWISE_SKINNY)

inline ConvRule limits(const Schedule &s, const Asked &x) {
  if (x.c.p.batch == 0) return ConvRule::undecided;
  const ConvRule layout = broken_layout(x.c, s.planes);
  if (layout != ConvRule::serves) return layout;
  const Gemm gemm(x, product(x.c, s.planes, true, true, false));
  return as_conv(cuda_gemm::skinny::limits({s.tile_m, s.tile_n, s.warps, s.few_columns}, gemm.asked));
}

inline double seconds(const Schedule &s, const Asked &x) {
  if (x.c.p.batch == 0) return x.rate.start;
  const Gemm gemm(x, product(x.c, s.planes, true, true, true));
  const double taken = cuda_gemm::skinny::seconds({s.tile_m, s.tile_n, s.warps, s.few_columns}, gemm.asked);
  return in_measure(x.c, x.rate, s.planes, taken);
}

}  // namespace skinny
}  // namespace pointwise
}  // namespace cuda_conv
}  // namespace select
}  // namespace tw
