// width_folded: tma_ws of few channels, of which pixels of a row make many in a copy.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/tma_ws/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace width_folded {

// clang-format off
#define TW_SELECT_CUDA_CONV_WIDTH_FOLDED(X) \
  X(tile_m) X(tile_n) X(tile_k) X(cluster_m) X(cluster_n) X(pingpong) X(tile_scheduler) X(tma_store) X(copies)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_WIDTH_FOLDED)

constexpr int64_t kPixel = 8, kWidth = 64, kColumns = 256;  // cuda/conv/width_folded/shape.h

TW_CONV_RULE(grouped, "nv-groups", "there is more than one group")
TW_CONV_RULE(channels_many, "nv-width-folded", "there are too many channels to fold")
TW_CONV_RULE(window_wide, "nv-width-folded", "the filter is too wide to fold")
TW_CONV_RULE(y_apart, "nv-channels-last", "y is not channels-last")
TW_CONV_RULE(copies_large, "nv-walk", "2^30 or more elements to copy")

// The taps of a row, or the pixels of a stride.
inline int64_t columns(const Conv &c) {
  const int64_t steps = c.stride.product();
  return round_up(c.p.channels * (steps == 1 ? c.window[2] : steps), 8);
}

// Over y, with the taps of a row as filters, or the pixels of x that lie in one stride.
inline ConvProblem folded_data(const Conv &c) {
  const ConvProblem &p = c.p;
  Sizes window{}, before{}, out{};
  for (int axis = 0; axis < 3; ++axis) {
    // All places of a stride count, those behind a small image too.
    ConvProblem whole = p;
    whole.size_0 = larger(p.size_0, p.stride_0), whole.size_1 = larger(p.size_1, p.stride_1);
    whole.size_2 = larger(p.size_2, p.stride_2);
    const tma_ws::Traversal traversed = tma_ws::traversal_of(Conv(whole), axis);
    before.at[axis] = -traversed.first, window.at[axis] = traversed.far + 1;
    out.at[axis] = ceil_div(c.size[axis], c.stride[axis]);
  }
  if (c.stride.product() == 1) before.at[2] = 0, window.at[2] = 1, out.at[2] = c.out[2];
  ConvProblem q{};
  q.variant = forward, q.dims = p.dims, q.batch = p.batch, q.channels = p.filters, q.filters = columns(c), q.groups = 1;
  q.size_0 = p.out_0, q.size_1 = p.out_1, q.size_2 = p.out_2;
  q.window_0 = window[0], q.window_1 = window[1], q.window_2 = window[2];
  q.stride_0 = q.stride_1 = q.stride_2 = q.dilation_0 = q.dilation_1 = q.dilation_2 = 1;
  q.before_0 = before[0], q.before_1 = before[1], q.before_2 = before[2];
  q.out_0 = out[0], q.out_1 = out[1], q.out_2 = out[2];
  q.after_0 = q.out_0 - 1 + q.window_0 - p.out_0 - q.before_0;
  q.after_1 = q.out_1 - 1 + q.window_1 - p.out_1 - q.before_1;
  q.after_2 = q.out_2 - 1 + q.window_2 - p.out_2 - q.before_2;
  lay_x(q, y_strides(c)), lay_w(q, dense_strides(window, q.channels)), lay_y(q, dense_strides(out, q.filters));
  q.size = p.size, q.size_out = q.size_d = 4, q.plain = 1, q.aligned = p.aligned;
  return q;
}

// The convolution of many channels that a folded one is computed as.
inline ConvProblem folded(const Conv &c) {
  if (c.p.variant == backward_data) return folded_data(c);
  ConvProblem q = c.p;
  const int64_t starts = (c.out[2] - 1) * c.stride[2] + 1;
  q.channels = kWidth, q.size_2 = starts, q.window_2 = q.dilation_2 = 1, q.before_2 = q.after_2 = 0;
  q.x_channel = 1, q.x_2 = kPixel, q.x_1 = (starts + kWidth / kPixel - 1) * kPixel;
  q.x_0 = q.x_1 * q.size_1, q.x_image = q.x_0 * q.size_0;
  lay_w(q, dense_strides(window_of(q), kWidth));
  return q;
}

// Of two bytes, of the copies of pixels, weights and results; backward_data has accumulators of four.
struct Elements {
  Wide x, w, y;
};
inline Elements elements(const Conv &c) {
  if (c.p.variant == backward_data) {
    const ConvProblem q = folded_data(c);
    const Wide weights = Wide(q.filters) * window_of(q).product() * round_up(q.channels, 64);
    return {0, weights, 2 * Wide(q.batch) * out_of(q).product() * q.filters};
  }
  const int64_t wide = (c.out[2] - 1) * c.stride[2] + kWidth / kPixel;
  return {Wide(c.p.batch) * c.size[0] * c.size[1] * wide * kPixel,
          Wide(c.p.filters) * c.window[0] * c.window[1] * kWidth, 0};
}

inline tma_ws::Schedule equivalent(const Schedule &s) {
  return {s.tile_m,   s.tile_n,         s.tile_k,    s.cluster_m, s.cluster_n,
          s.pingpong, s.tile_scheduler, s.tma_store, 0,           in_place};
}

// Of a problem as it lies; conv/width_folded/host.h.
inline const Rule *broken(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  if (p.batch == 0) return &no_images;
  if (p.groups != 1) return &grouped;
  if (p.channels > kPixel || (data && columns(c) > kColumns)) return &channels_many;
  if (!data && (c.window[2] > kWidth / kPixel || c.dilation[2] != 1)) return &window_wide;
  if (p.y_channel != 1) return &y_apart;
  if (!even_taps(c)) return &taps_uneven;
  const Elements copied = elements(c);
  if (copied.x * 2 >= kMost || copied.w * 2 >= kMost || copied.y * 2 >= kMost ||
      Wide(p.batch) * c.size.product() >= kMost / 2)
    return &copies_large;
  const ConvProblem inner = folded(c);
  return tma_ws::broken(equivalent(s), Conv(inner));
}

constexpr Needs needs{false, false, true};

inline const Rule *limits(const Schedule &s, const Conv &c) {
  return limits_in_copies(s.copies, needs, c, [&](const Conv &laid_out) { return broken(s, laid_out); });
}

}  // namespace width_folded
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
