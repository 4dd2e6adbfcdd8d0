// gather, gather_planes: cp.async gathers pieces of both operands, and mma.sync multiplies them.
#pragma once
#include <tilewright/select/cuda_conv.h>

namespace tw {
namespace select {
namespace cuda_conv {
namespace gather {

// `vector_*`: elements that are copied at a time; `along_*`: neighbouring threads read along k; `together`: blocks of
// one multiprocessor, at least (`ConvGather::together`).
// clang-format off
#define TW_SELECT_CUDA_CONV_GATHER(X) \
  X(tile_m) X(tile_n) X(tile_k) X(vector_a) X(vector_b) X(along_a) X(along_b) X(together)
// clang-format on
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_GATHER)

constexpr int64_t kMostSides = 30, kMostStride = 8;  // taps of all axes have a bit each; classes of pixels of an axis
constexpr int64_t kLeastProducts = 32;               // of a pixel in a group: with fewer, tiles are all but empty
constexpr int64_t kHalf = kMost / 2;

// Classes of pixels share the taps.
inline int64_t classes_of(const Conv &c) {
  int64_t classes = 1;
  for (int axis = 0; axis < 3; ++axis) classes *= smaller(c.size[axis], c.stride[axis]);
  return classes;
}

inline Wide places(const Conv &c) {
  Wide found = c.p.batch;
  for (int axis = 0; axis < 3; ++axis) found *= ceil_div(c.size[axis], c.stride[axis]);
  return found;
}

// Of all groups and classes.
inline Wide tiles(const Schedule &s, const Conv &c) {
  const bool data = c.p.variant == backward_data, weight = c.p.variant == backward_weight;
  const Wide lines = weight ? Wide(c.group_filters) : data ? places(c) : Wide(c.p.batch) * c.out.product();
  const Wide columns = weight ? Wide(c.group_channels) * c.taps : Wide(data ? c.group_channels : c.group_filters);
  return (lines + s.tile_m - 1) / s.tile_m * ((columns + s.tile_n - 1) / s.tile_n) * (data ? classes_of(c) : 1) *
         c.p.groups;
}

inline bool too_large(const Schedule &s, const Conv &c) {
  const bool data = c.p.variant == backward_data;
  int64_t most = larger(c.group_channels, c.group_filters);
  for (int axis = 0; axis < 3; ++axis) {
    most = larger(most, larger(larger(c.size[axis], c.out[axis]), c.before[axis]));
    most = larger(most, larger(c.window[axis] * c.dilation[axis], c.out[axis] * c.stride[axis]));
  }
  const Wide lines = data ? places(c) : Wide(c.p.batch) * c.out.product();
  const Wide deep = Wide(c.taps) * (data ? c.group_filters : c.group_channels);
  return most >= kHalf || lines >= kHalf || deep >= kHalf || tiles(s, c) >= kHalf;
}

// Whether elements of an operand lie 2^31 or more apart.
inline bool far_apart(int64_t images, const Sizes &shape, const Strides &s) {
  Wide span = 0;
  const auto add = [&](int64_t size, int64_t stride) {
    if (size) span += Wide(size - 1) * (stride < 0 ? -stride : stride);
  };
  add(images, s.image), add(s.channels, s.channel);
  for (int axis = 0; axis < 3; ++axis) add(shape[axis], s.at[axis]);
  return span >= kMost;
}

inline ConvRule limits(const Schedule &s, const Asked &x) {
  const Conv &c = x.c;
  const bool data = c.p.variant == backward_data, weight = c.p.variant == backward_weight;
  if (c.p.batch == 0 && !weight) return ConvRule::serves;
  if (c.window[0] + c.window[1] + c.window[2] > kMostSides) return ConvRule::nv_gather;
  if (data && larger(larger(c.stride[0], c.stride[1]), c.stride[2]) > kMostStride) return ConvRule::nv_gather;
  if (!weight && Wide(c.taps) * c.group_channels * c.group_filters < kLeastProducts) return ConvRule::nv_gather;
  if (too_large(s, c) || far_apart(c.p.batch, c.size, x_strides(c)) ||
      far_apart(c.group_filters, c.window, w_strides(c)) || far_apart(c.p.batch, c.out, y_strides(c)))
    return ConvRule::nv_gather;
  if (s.vector_a > 1 && !in_vectors(c, data || weight ? y_strides(c) : x_strides(c), s.vector_a))
    return ConvRule::nv_alignment;
  if (s.vector_b > 1 && !in_vectors(c, weight ? x_strides(c) : w_strides(c), s.vector_b)) return ConvRule::nv_alignment;
  return ConvRule::serves;
}

// Blocks that share a tile; `deal` in conv_host_gather.h.
inline int64_t parts_of_k(const Schedule &s, const Conv &c, int64_t tiles, int64_t steps, int64_t processors) {
  const double step = double(s.tile_m * s.tile_n * s.tile_k) / (c.p.size == 4 ? 1.7e11 : 8e11);
  const double sums = double(s.tile_m * s.tile_n * 8) / 2.5e12;
  int64_t best = 1;
  double least = 0.0;
  for (int64_t full = 0; full <= s.together; ++full) {
    const int64_t parts = larger(1, smaller(full ? processors * full / tiles : 1, steps / 4));
    const int64_t high = ceil_div(tiles * parts, processors);
    double taken = double(ceil_div(steps, parts)) * step * (high > 1 ? double(high) : 1.3);
    if (parts > 1) taken += 3e-6 + double(tiles * parts) * sums;
    if (full == 0 || taken < least) best = parts, least = taken;
  }
  return ceil_div(steps, ceil_div(steps, best));
}

// How an operand comes in; `Gathered` in cuda/conv/gather/shape.h.
struct Side {
  int64_t size, lines, deep, vector;
  bool along_k;

  bool single() const { return vector * size < 4; }  // element by element, which no copy can
  bool held() const { return single() || (size == 4 && along_k && vector > 1); }
  // Instructions that its pieces take.
  double asked() const {
    const double each = single() ? 14.0 : held() ? 40.0 : 26.0;
    return double(lines * deep) / double(single() ? 1 : vector) * each;
  }
  // Of a stage: elements that neighbouring threads do not read side by side take a sector each.
  double bytes(int64_t apart_k, int64_t apart_lines) const {
    const int64_t apart = along_k ? apart_k : apart_lines;
    const int64_t each = vector > 1 ? size : smaller(32, larger(1, apart < 0 ? -apart : apart) * size);
    return double(lines * deep * each);
  }
};

inline double fetched_bytes(const Conv &c, const Side &a, const Side &b) {
  const ConvProblem &p = c.p;
  if (p.variant == forward) return a.bytes(p.x_channel, p.x_2 * p.stride_2) + b.bytes(p.w_channel, p.w_filter);
  if (p.variant == backward_data) return a.bytes(p.y_channel, p.y_2) + b.bytes(p.w_filter, p.w_channel);
  return a.bytes(p.y_2, p.y_channel) + b.bytes(p.x_2 * p.stride_2, p.x_channel);
}

// Whether results leave in words.
inline bool leaves_in_words(const Conv &c) {
  const int64_t variant = c.p.variant, width = c.p.size_out == 4 ? 4 : 8;
  return in_vectors(c,
                    variant == forward         ? y_strides(c)
                    : variant == backward_data ? x_strides(c)
                                               : w_strides(c),
                    width);
}

// The slowest of multiplying, asking for pieces, and memory, all of the busiest multiprocessor.
inline double seconds(const Schedule &s, const Asked &x) {
  const Conv &c = x.c;
  const GatherRates &r = x.rate.gather;
  const int64_t m = s.tile_m, n = s.tile_n, k = s.tile_k, size = c.p.size, units = x.arch.compute_units;
  const int64_t whole = int64_t(tiles(s, c));
  if (c.p.batch == 0 || whole == 0) return x.rate.start;
  const bool data = c.p.variant == backward_data, weight = c.p.variant == backward_weight;
  int64_t deep = weight ? c.p.batch * c.out.product() : (data ? c.group_filters : c.group_channels) * c.taps;
  if (data) deep = ceil_div(deep, classes_of(c));
  const int64_t steps = larger(1, ceil_div(deep, k)), parts = parts_of_k(s, c, whole, steps, units);
  const Side a{size, m, k, s.vector_a, s.along_a != 0}, b{size, n, k, s.vector_b, s.along_b != 0};
  const double multiply = double(m * n * k) / (size == 1 ? r.macs_1 : size == 2 ? r.macs_2 : r.macs_4);
  const double asked = (a.asked() + b.asked()) / 32 / r.issued, fetched = fetched_bytes(c, a, b) / r.fetched;
  const double longest = slower(slower(multiply, asked), fetched);
  const double step = longest + 0.62 * (multiply + asked + fetched - longest);
  const int64_t busiest = ceil_div(whole * parts, units);
  const double leave = double(m * n * 70) / (leaves_in_words(c) ? 4 : 1) / 32 / r.issued;
  const double rounds = double(busiest) * (1.0 + 0.11 / double(smaller(busiest, s.together)));
  const double took = double(ceil_div(steps, parts)) * step * rounds + (leave + r.setup) * double(busiest);
  const double shared = parts > 1 ? r.meet + double(Wide(whole) * parts * m * n * 8) / r.memory : 0.0;
  const double all = r.start + r.fill + slower(took, c.moved / r.memory) + shared;
  // Where it is even with kernels of the copy engine and wgmma, these are the faster ones.
  return all * (size == 2 && x.arch.wgmma ? 1.2 : 1.0);
}

}  // namespace gather
}  // namespace cuda_conv
}  // namespace select
}  // namespace tw
