// What a learned model sees of a convolution, and of one with each kernel; as ops/conv/features.py in training.
#pragma once
#include <math.h>
#include <tilewright/select/conv.h>
#include <tilewright/select/features.h>

namespace tw {
namespace selection {
namespace conv_features {

constexpr int64_t kProblem = 41, kBoth = 19, kSizes = 8;

// Of the kernels alone, a number a kernel: `kernel_terms` of ops/conv/features.py.  `parts` are eight rows of them;
// `split`, `merges` and `results` may be null where no kernel does so.
struct Terms {
  const double *parts, *depth, *intensity, *split, *merges, *results;
};
constexpr char kTermRows[] = "8 1 1 1? 1? 1?";

using Seen = Conv;
inline double flops(const Seen &c) {
  return double(2 * Wide(c.p.batch) * c.out.product() * c.p.filters * c.group_channels * c.taps);
}

inline double log2_of(double value) { return log2(value > 1.0 ? value : 1.0); }

// The power of two that divides a size, up to 256, as its logarithm.
inline double divides(int64_t size) { return size ? double(smaller(8, __builtin_ctzll(uint64_t(size)))) : 8.0; }

// m, n and k of one group's implicit GEMM.
struct Gemm {
  double m, n, k;
};
inline Gemm gemm_of(const Conv &c) {
  const double outputs = double(Wide(c.p.batch) * c.out.product());
  const double channels = double(c.group_channels), filters = double(c.group_filters);
  if (c.p.variant == forward) return {outputs, filters, double(Wide(c.group_channels) * c.taps)};
  if (c.p.variant == backward_weight) return {filters, double(Wide(c.group_channels) * c.taps), outputs};
  return {double(Wide(c.p.batch) * c.size.product()), channels, double(Wide(c.group_filters) * c.taps)};
}

inline bool pointwise(const Conv &c) {
  for (int axis = 0; axis < 3; ++axis)
    if (c.window[axis] != 1 || c.stride[axis] != 1 || c.before[axis]) return false;
  return c.p.after_0 == 0 && c.p.after_1 == 0 && c.p.after_2 == 0;
}

// The columns of words, the direction and the epilogue, are left 0: which number a word has is the model's to say.
inline void of_problem(const Conv &c, float *out) {
  const ConvProblem &p = c.p;
  const Gemm g = gemm_of(c);
  const double operations = flops(c);
  const auto real = [](int64_t x) { return double(x); };
  // clang-format off
  const double found[kProblem] = {
      0.0, real(p.dims), log2_of(g.m), log2_of(g.n), log2_of(g.k), log2_of(real(p.batch)), log2_of(real(p.groups)),
      log2_of(real(c.group_channels)), log2_of(real(c.group_filters)), log2_of(real(c.size.product())),
      log2_of(real(c.out.product())), log2_of(real(c.size[2])), log2_of(real(c.size[1])), log2_of(real(c.size[0])),
      real(c.window[2]), real(c.window[1]), real(c.window[0]), real(c.stride[2]), real(c.stride[1]), real(c.stride[0]),
      real(c.dilation[2]), real(c.dilation[1]), real(c.dilation[0]), real(c.before[2]), real(c.before[1]),
      real(c.before[0]), real(pointwise(c)), log2_of(operations), log2_of(operations / slower(1.0, c.moved)), real(p.size),
      real(p.size_out), divides(c.group_channels), divides(c.group_filters), real(c.channels_last()), real(p.num_d),
      real(p.full_d), 0.0, real(p.deterministic), log2_of(c.x_elements()), log2_of(c.w_elements()),
      log2_of(c.y_elements())};
  // clang-format on
  for (int64_t i = 0; i < kProblem; ++i) out[i] = float(found[i]);
}

// A row a feature, a column a kernel of `some`; terms are of `count` kernels, and rows lie as far apart.
inline void of_both(const Conv &c, const Terms &t, int64_t count, int64_t units, const Some &some, double *out) {
  const Gemm g = gemm_of(c);
  const double each = double(units), all_groups = double(c.p.groups), width = double(c.out[2]);
  const double sizes[kSizes] = {g.m, g.n, g.m, g.n, double(c.group_filters), double(c.group_channels), width, width};
  for (int64_t row = 0; row < some.count; ++row) {
    const int64_t at = some.place(row);
    double *to = out + row;
    double counts[kSizes], full[kSizes];
    for (int64_t i = 0; i < kSizes; ++i) counts[i] = sizes[i] / t.parts[i * count + at];
    to[8 * count] = faster(64.0, counts[0]), to[9 * count] = faster(64.0, counts[1]);
    double groups = all_groups, wide = g.n;
    if (t.merges) {  // a tile has the filters of several groups
      wide = g.n * faster(t.merges[at], all_groups);
      counts[1] = wide / t.parts[count + at];
      groups = ceiling(all_groups / t.merges[at]);
    }
    for (int64_t i = 0; i < kSizes; ++i) {
      counts[i] = ceiling(counts[i]);
      full[i] = (i == 1 ? wide : sizes[i]) / slower(1.0, counts[i] * t.parts[i * count + at]);
    }
    const double tiles = slower(1.0, counts[0] * counts[1] * groups * (t.split ? t.split[at] : 1.0));
    const double waves = tiles / each, steps = slower(1.0, ceiling(g.k / t.depth[at]));
    to[0] = tiles, to[count] = waves, to[2 * count] = tiles / (ceiling(waves) * each);
    to[3 * count] = full[0], to[4 * count] = full[1], to[5 * count] = g.k / (steps * t.depth[at]),
           to[6 * count] = steps;
    to[7 * count] = t.intensity[at], to[10 * count] = t.merges ? all_groups / t.merges[at] : all_groups;
    for (int64_t i = 2; i < kSizes; ++i) to[(9 + i) * count] = full[i];
    double results = 1.0;  // as kernels see them that compute several of a row and column at once
    for (int axis = 3 - int(c.p.dims); t.results && axis < 3; ++axis) {
      const double size = double(c.out[axis]), part = t.results[at];
      results *= size / slower(1.0, ceiling(size / part) * part);
    }
    to[17 * count] = results, to[18 * count] = counts[2] * counts[3] * all_groups / each;
  }
}

}  // namespace conv_features
}  // namespace selection
}  // namespace tw

// The exports of a library of convolution kernels: what a learned model sees of a problem, and of it with kernels.
#define TW_SELECT_CONV_FEATURES TW_SELECT_FEATURES(tw::selection::ConvProblem, tw::selection::conv_features)
