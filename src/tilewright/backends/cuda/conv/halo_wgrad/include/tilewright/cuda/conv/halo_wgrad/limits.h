// halo_wgrad: gradients of weights over halo tiles of pixels, the taps of a plane at a time.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/halo/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace halo_wgrad {

// `halo_rows`: rows of x there is room for; `most_processors`: that the arch's devices have at most; `copies`: of
// cuda/conv/copies_limits.h.
#define TW_SELECT_CUDA_CONV_HALO_WGRAD(X) X(pixels) X(stages) X(halo_rows) X(most_processors) X(copies)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_HALO_WGRAD)

TW_CONV_RULE(groups_of_odd_bytes, "nv-groups", "the channels or filters of a group are not a multiple of 16 bytes")
TW_CONV_RULE(stride_large, "nv-halo", "a stride is over 1")
TW_CONV_RULE(taps_of_plane, "nv-halo", "a plane of the filter has one tap, or more than nine")
TW_CONV_RULE(weights_many, "nv-walk", "2^31 or more weights")
TW_CONV_RULE(halo_short, "nv-halo", "the filter reaches over more rows than the {halo_rows} of a halo tile")

// Groups that lie in 64 channels and in 64 filters together, in whole 16 bytes; 0: none do.
inline int64_t side_by_side(const Conv &c) {
  for (int64_t merged = smaller(c.p.groups, 64); merged > 0; --merged) {
    const int64_t channels = merged * c.group_channels, filters = merged * c.group_filters;
    const bool whole = c.p.groups == merged || (channels % 8 == 0 && filters % 8 == 0);
    if (c.p.groups % merged == 0 && whole && (merged == 1 || (channels <= 64 && filters <= 64))) return merged;
  }
  return 0;
}

// Of 64 filters and 64 channels, of all groups.
inline Wide blocks(const Conv &c, int64_t merged) {
  return Wide(ceil_div(merged * c.group_filters, 64)) * ceil_div(merged * c.group_channels, 64) * (c.p.groups / merged);
}

inline const Rule *broken_traversal(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  const Reach reach = reach_of(c);
  Wide traversed = p.batch;
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t far = (c.window[axis] - 1) * c.dilation[axis], count = c.out[axis] + (axis > 0 ? far : 0);
    traversed *= count;
    if (axis == 0 && far > reach.tap) return &taps_far;
    if (!reach.holds(-c.before[axis]) || !reach.holds(count - c.before[axis] - c.size[axis])) return &edge_far;
    if (axis > 0 && far >= reach.edge) return &edge_far;
  }
  if (traversed >= kMost / 2 || larger(p.channels, p.filters) >= kMost) return &size_large;
  const Wide weights = Wide(p.filters) * c.taps * c.group_channels, items = blocks(c, side_by_side(c)) * c.window[0];
  return weights >= kMost || items * s.most_processors >= kMost ? &weights_many : nullptr;
}

// Of a problem as it lies; conv/halo_wgrad/host.h.
inline const Rule *broken(const Schedule &s, const Conv &c) {
  if (c.p.batch == 0) return &no_images;
  if (!c.channels_last()) return &channels_apart;
  if (!even_taps(c)) return &taps_uneven;
  if (!readable(c, x_strides(c)) || !readable(c, y_strides(c))) return &unaligned;
  if (!side_by_side(c)) return &groups_of_odd_bytes;
  if (c.stride.product() != 1) return &stride_large;
  const int64_t taps = c.window[1] * c.window[2];
  if (taps < 2 || taps > 9) return &taps_of_plane;
  if (const Rule *rule = broken_traversal(s, c)) return rule;
  return halo::halo_rows(c) + s.pixels > s.halo_rows ? &halo_short : nullptr;
}

constexpr Needs needs{false, true, false};

inline const Rule *limits(const Schedule &s, const Conv &c) {
  return limits_in_copies(s.copies, needs, c, [&](const Conv &laid_out) { return broken(s, laid_out); });
}

}  // namespace halo_wgrad
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
