// What kernels of convolutions on AMD GPUs refuse that multiply in tiles, and which operands they copy.
//
// Kernels with copies compute in copies of their own: any memory, channels-first among it, and any channels
// (conv/copied.h).
#pragma once
#include <tilewright/select/conv.h>

namespace tw {
namespace selection {
namespace hip_conv {

inline constexpr Rule amd_copied{"amd-copied", TW_LIMIT,
                                 "nothing needs to be copied, or D tensors would have to be ({num_d} of them, "
                                 "groups: {groups}, merged: {merged}), "
                                 "or 2^31 elements or 2^30 pixels are too many to copy",
                                 "use another kernel of the pool"};
inline constexpr Rule amd_channels_last{"amd-channels-last", TW_ALIGNMENT, "memory is not channels-last",
                                        "use another kernel of the pool"};
inline constexpr Rule amd_strides{"amd-strides", TW_LIMIT, "an operand has a negative stride",
                                  "use another kernel of the pool"};
inline constexpr Rule amd_merged{"amd-merged", TW_DIVISIBILITY,
                                 "the number of groups, {groups}, is not a multiple of the {merged} merged ones",
                                 "use another kernel of the pool"};
inline constexpr Rule amd_dense{
    "amd-dense", TW_LIMIT, "the taps of a filter are not contiguous, or the pixels that are read are not evenly spaced",
    "use another kernel of the pool"};
inline constexpr Rule amd_pointwise{"amd-pointwise", TW_LIMIT,
                                    "the kernel is for 1x1 filters with stride 1 and no padding, and the filter is "
                                    "{window_0}x{window_1}x{window_2}",
                                    "use another kernel of the pool"};
inline constexpr Rule amd_alignment{
    "amd-alignment", TW_ALIGNMENT,
    "operands are read {read_a} and {read_b} elements at a time: {channels} channels, {filters} "
    "filters, a stride or an address is not a multiple of that",
    "align it, or use a kernel with narrower vectors"};
inline constexpr Rule amd_operand_size{"amd-operand-size", TW_LIMIT,
                                       "weights, or what one launch reads of a group, span 2 GiB or more, and "
                                       "offsets are 32-bit",
                                       "split the problem"};
inline constexpr Rule amd_size{
    "amd-size", TW_LIMIT,
    "m, n or k of the product, or an axis of {size_0}x{size_1}x{size_2} pixels with its padding, is 2^30 or more",
    "split the problem"};
inline constexpr Rule amd_tiles{"amd-tiles", TW_LIMIT,
                                "so many tiles of {tile_m}x{tile_n} make a launch of 2^32 threads or more",
                                "use another kernel of the pool"};
inline constexpr Rule amd_groups{"amd-groups", TW_LIMIT, "{groups} groups, and a launch takes at most 65535",
                                 "use another kernel of the pool"};
inline constexpr Rule amd_residues{"amd-residues", TW_LIMIT,
                                   "strides {stride_0}x{stride_1}x{stride_2} divide pixels into more than 512 classes",
                                   "use another kernel of the pool"};

// What kernels have in common that multiply in tiles.  `read_*`: elements of one load; `pointwise`: for windows of one
// tap; `copies`: any memory, in copies that the kernel makes; `merged`: groups that are one product.
// clang-format off
#define TW_SELECT_HIP_CONV_TILES(X) \
  X(tile_m) X(tile_n) X(tile_k) X(split_k) X(threads) X(read_a) X(read_b) X(pointwise) X(copies) X(merged)
// clang-format on
struct Tiles {
  TW_SELECT_HIP_CONV_TILES(TW_SELECT_FIELD_int)
};
#define TW_SELECT_HIP_CONV_OF(name) s.name,
template <class Schedule> Tiles tiles_of(const Schedule &s) {
  Tiles tiles = {TW_SELECT_HIP_CONV_TILES(TW_SELECT_HIP_CONV_OF)};
  tiles.merged = larger(1, tiles.merged);  // groups are counted in it
  return tiles;
}

constexpr int64_t kMostBytes = (int64_t(1) << 31) - (1 << 16);  // offsets inside an operand are 32-bit
constexpr int64_t kMostSize = int64_t(1) << 30;
constexpr int64_t kMostThreads = int64_t(1) << 32;  // of a launch
constexpr int64_t kMostGroups = (int64_t(1) << 16) - 1, kMostResidues = 512;
constexpr int64_t kAccess = 16;  // bytes

// Rows, columns and k of one product.
struct Product {
  int64_t m, n, k;
};
inline Product product_of(const Conv &c, int64_t merged) {
  const int64_t outputs = c.p.batch * c.out.product();
  if (c.p.variant == forward) return {outputs, c.group_filters * merged, c.group_channels * c.taps * merged};
  if (c.p.variant == backward_weight) return {c.group_filters, c.group_channels * c.taps * merged, outputs * merged};
  return {c.p.batch * c.size.product(), c.group_channels * merged, c.group_filters * c.taps * merged};
}

// Of backward_data: residues of the strides, whose pixels are read at the same taps.
inline Wide residues(const Conv &c) {
  Wide all = 1;
  for (int axis = 0; axis < 3; ++axis) all *= smaller(c.stride[axis], c.size[axis]);
  return all;
}

// Whether pixels lie at equal distances, images too; a stride along one pixel says nothing.
inline bool even(const Strides &s, int64_t images, const Sizes &sizes) {
  return dense_pixels(s.image, s.at[0], s.at[1], s.at[2], images < 2 ? 1 : images, sizes);
}
inline bool backwards(const Strides &s) {
  return s.image < 0 || s.at[0] < 0 || s.at[1] < 0 || s.at[2] < 0 || s.channel < 0;
}
inline bool whole(const Strides &s, int64_t load) {
  return s.image % load == 0 && s.at[0] % load == 0 && s.at[1] % load == 0 && s.at[2] % load == 0;
}
// Whether the taps of a filter lie side by side.
inline bool dense_taps(const Conv &c) { return c.p.w_2 == c.group_channels && even(w_strides(c), 1, c.window); }

inline const Rule *broken_layout(const Tiles &t, const Conv &c) {
  const ConvProblem &p = c.p;
  if (p.variant != backward_data && !dense_taps(c)) return &amd_dense;
  if (p.variant == backward_weight && !even(y_strides(c), p.batch, c.out)) return &amd_dense;
  if (!t.pointwise) return nullptr;
  for (int axis = 0; axis < 3; ++axis)
    if (c.window[axis] != 1 || c.stride[axis] != 1 || c.before[axis] || c.out[axis] != c.size[axis])
      return &amd_pointwise;
  const bool level =
      p.variant == backward_data ? even(y_strides(c), p.batch, c.out) : even(x_strides(c), p.batch, c.size);
  return level ? nullptr : &amd_dense;
}

// Operands are read in whole accesses only; the result and D tensors may lie as they like.
inline const Rule *broken_reads(const Tiles &t, const Conv &c) {
  const ConvProblem &p = c.p;
  const int64_t taps = t.merged == 1 ? c.taps : 1;  // forward reads a filter as one row; of merged groups a tap of it
  const bool ahead = p.variant == forward, data = p.variant == backward_data;
  const int64_t extent_a = (ahead ? c.group_channels : c.group_filters) * t.merged;
  const int64_t extent_b = ahead ? c.group_channels * taps : data ? c.group_channels : c.group_channels * t.merged;
  if ((t.read_a > 1 || t.read_b > 1) && !p.aligned) return &amd_alignment;
  if (extent_a % t.read_a || !whole(ahead ? x_strides(c) : y_strides(c), t.read_a)) return &amd_alignment;
  const bool loose = ahead ? p.w_filter % t.read_b : !whole(data ? w_strides(c) : x_strides(c), t.read_b);
  return extent_b % t.read_b || loose ? &amd_alignment : nullptr;
}

// Bytes from the first to the last of a group.
inline Wide span(const Strides &s, int64_t images, const Sizes &sizes, int64_t channels, int64_t size) {
  Wide found = Wide(images - 1) * s.image + channels;
  for (int axis = 0; axis < 3; ++axis) found += Wide(sizes[axis] - 1) * s.at[axis];
  return found * size;
}

// What one launch takes of what is gathered: whole images, or (forward) some rows of the result of one image.
//
// `one`: bytes that an image spans; `apart`: from image to image; `pixels`: of the result, of an image.
inline int64_t images_at_once(int64_t batch, Wide one, Wide apart, Wide pixels) {
  Wide most = one >= kMostBytes ? 0 : apart > 0 ? (kMostBytes - 1 - one) / apart + 1 : Wide(batch);
  const Wide by_rows = (kMostSize - 1) / (pixels > 1 ? pixels : 1);
  most = most < by_rows ? most : by_rows;
  return most < batch ? int64_t(most) : batch;
}
// backward_weight reads x and y by images, and its k are their pixels.  The splits of k of all launches are added at the
// end, so only kernels that split k go so.
struct ReadByImages {
  Wide one, apart;
};
inline int64_t images_at_once(int64_t batch, const ReadByImages &x, const ReadByImages &y, Wide pixels) {
  return smaller(images_at_once(batch, x.one, x.apart, pixels), images_at_once(batch, y.one, y.apart, pixels));
}
// Of an axis of the result, whose rows read `stride` further each at `taps` rows of the image from its first to its last
// tap: `inner` bytes are spanned by one row, `apart` from row to row.
inline int64_t rows_at_once(int64_t rows, int64_t stride, int64_t taps, Wide inner, Wide apart) {
  const Wide first = inner + Wide(taps - 1) * apart;
  if (first >= kMostBytes) return 0;
  const Wide step = Wide(stride) * apart, most = step > 0 ? (kMostBytes - 1 - first) / step + 1 : Wide(rows);
  return most < rows ? int64_t(most) : rows;
}
// The axis whose rows are taken apart: the first with more than one row of the result, or none.
template <class Out> int sliced_axis(const Out &out) {
  for (int axis = 0; axis < 3; ++axis)
    if (out[axis] > 1) return axis;
  return -1;
}

// The convolution of one launch, the largest of all; itself where there is but one.
inline ConvProblem of_one_launch(const Tiles &t, const Conv &c) {
  ConvProblem p = c.p;
  if (p.variant == backward_weight) {
    const Strides x = x_strides(c), y = y_strides(c);
    const ReadByImages of_x{span(x, 1, c.size, c.group_channels, p.size), Wide(x.image) * p.size},
        of_y{span(y, 1, c.out, c.group_filters, p.size), Wide(y.image) * p.size};
    const int64_t images = t.split_k > 1 ? images_at_once(p.batch, of_x, of_y, c.out.product()) : 0;
    if (images > 0) p.batch = images;
    return p;
  }
  const bool ahead = p.variant == forward;
  const Strides s = ahead ? x_strides(c) : y_strides(c);
  const Sizes &read = ahead ? c.size : c.out;
  const int64_t channels = (ahead ? c.group_channels : c.group_filters) * t.merged;
  const Wide one = span(s, 1, read, channels, p.size);
  const int64_t images = images_at_once(p.batch, one, Wide(s.image) * p.size, (ahead ? c.out : c.size).product());
  if (images > 0) p.batch = images;
  if (images > 0 || !ahead || p.batch == 0) return p;
  const int axis = sliced_axis(c.out);
  if (axis < 0) return p;
  p.batch = 1;
  const Wide apart = Wide(s.at[axis]) * p.size, inner = one - Wide(read[axis] - 1) * apart;
  const int64_t taps = (c.window[axis] - 1) * c.dilation[axis] + 1;
  const int64_t rows = rows_at_once(c.out[axis], c.stride[axis], taps, inner, apart);
  if (rows == 0) return p;
  const int64_t size = smaller(c.size[axis], (rows - 1) * c.stride[axis] + taps);
  (axis == 0 ? p.out_0 : axis == 1 ? p.out_1 : p.out_2) = rows;
  (axis == 0 ? p.size_0 : axis == 1 ? p.size_1 : p.size_2) = size;
  return p;
}

inline const Rule *broken_sizes(const Tiles &t, const Conv &all) {
  const ConvProblem p = of_one_launch(t, all);  // which `Conv` only refers to
  const Conv c(p);
  const int64_t of_x = c.group_channels * t.merged, of_y = c.group_filters * t.merged;
  const bool wide_x = span(x_strides(c), p.batch, c.size, of_x, p.size) >= kMostBytes;
  const bool wide_w = span(w_strides(c), of_y, c.window, c.group_channels, p.size) >= kMostBytes;
  const bool wide_y = span(y_strides(c), p.batch, c.out, of_y, p.size) >= kMostBytes;
  if ((wide_x && p.variant != backward_data) || (wide_w && p.variant != backward_weight) ||
      (wide_y && p.variant != forward))
    return &amd_operand_size;
  const Product product = product_of(c, t.merged);
  Wide reach = larger(larger(product.m, product.n), product.k);
  for (int axis = 0; axis < 3; ++axis) {
    const Wide extents[] = {Wide(c.size[axis]) + c.before[axis], Wide(c.window[axis]) * c.dilation[axis],
                            Wide(c.out[axis]) * c.stride[axis]};
    for (Wide far : extents) reach = far > reach ? far : reach;
  }
  if (reach >= kMostSize) return &amd_size;
  const Wide tiles = Wide(ceil_div(product.m, t.tile_m)) * ceil_div(product.n, t.tile_n);
  if (tiles * t.threads >= kMostThreads) return &amd_tiles;
  if (p.groups / t.merged > kMostGroups) return &amd_groups;
  return p.variant == backward_data && residues(c) > kMostResidues ? &amd_residues : nullptr;
}

inline const Rule *broken(const Tiles &t, const Conv &c) {
  if (!c.channels_last()) return &amd_channels_last;
  if (backwards(x_strides(c)) || backwards(w_strides(c)) || backwards(y_strides(c))) return &amd_strides;
  if (c.p.groups % t.merged) return &amd_merged;
  const Rule *layout = broken_layout(t, c);
  if (layout != nullptr) return layout;
  const Rule *reads = broken_reads(t, c);
  return reads != nullptr ? reads : broken_sizes(t, c);
}

constexpr int64_t kMostLines = int64_t(1) << 30, kMostElements = int64_t(1) << 31;

// The convolution of the copies, and of what is not copied.
struct Copied {
  ConvProblem p;
  bool x, w, y;  // which are copied: what the kernel cannot take where it lies
};

// Whether an operand lies so that the kernel cannot read it in whole loads, or write it at all.
inline bool odd(const Conv &c, const Strides &s, bool written, int64_t load, bool loose) {
  if (s.channel != 1 || backwards(s)) return true;
  return !written && ((load > 1 && !c.p.aligned) || loose);
}

inline Copied copied(const Tiles &t, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool ahead = p.variant == forward, data = p.variant == backward_data, weight = p.variant == backward_weight;
  // Multiples of which a group's channels and filters are in copies: whole loads of one group, or of merged ones.
  const int64_t together = larger(1, t.read_a / (t.merged & -t.merged));
  const int64_t groups = round_up(p.groups, t.merged);
  const int64_t channels = round_up(c.group_channels, ahead ? larger(together, t.read_b) : t.read_b);
  const int64_t filters = round_up(c.group_filters, ahead ? 1 : together);
  const bool more_groups = groups != p.groups, more_channels = channels != c.group_channels,
             more_filters = filters != c.group_filters;
  const int64_t of_x = weight ? t.read_b : t.read_a;
  const bool loose_w = ahead ? p.w_filter % t.read_b : !whole(w_strides(c), t.read_b);
  Copied made{p, false, false, false};
  made.x = more_groups || more_channels || odd(c, x_strides(c), data, of_x, !whole(x_strides(c), of_x));
  made.w = more_groups || more_channels || more_filters || !(data || dense_taps(c)) ||
           odd(c, w_strides(c), weight, t.read_b, loose_w);
  made.y = more_groups || more_filters || odd(c, y_strides(c), ahead, t.read_a, !whole(y_strides(c), t.read_a)) ||
           (weight && !even(y_strides(c), p.batch, c.out));
  ConvProblem &q = made.p;
  q.groups = groups, q.channels = groups * channels, q.filters = groups * filters, q.aligned = 1;
  if (made.x) {
    q.x_channel = 1, q.x_2 = q.channels, q.x_1 = q.x_2 * q.size_2, q.x_0 = q.x_1 * q.size_1;
    q.x_image = q.x_0 * q.size_0;
  }
  if (made.w) {
    q.w_channel = 1, q.w_2 = channels, q.w_1 = q.w_2 * q.window_2, q.w_0 = q.w_1 * q.window_1;
    q.w_filter = q.w_0 * q.window_0;
  }
  if (made.y) {
    q.y_channel = 1, q.y_2 = q.filters, q.y_1 = q.y_2 * q.out_2, q.y_0 = q.y_1 * q.out_1;
    q.y_image = q.y_0 * q.out_0;
  }
  return made;
}

// A copy of so many pixels, `row` elements apart.
inline bool too_long(Wide lines, int64_t row) { return lines >= kMostLines || lines * row >= kMostElements; }

inline const Rule *broken_copies(const Conv &c, const Copied &made) {
  const ConvProblem &p = c.p, &q = made.p;
  if ((!made.x && !made.w && !made.y) || (p.num_d && q.groups != p.groups)) return &amd_copied;
  const int64_t piece = kAccess / p.size_out;  // rows of results begin at whole accesses
  const int64_t row_x = p.variant == backward_data ? round_up(q.channels, piece) : q.channels;
  const int64_t row_y = p.variant == forward ? round_up(q.filters, piece) : q.filters;
  const bool long_x = made.x && too_long(Wide(p.batch) * c.size.product(), row_x);
  const bool long_w = made.w && too_long(Wide(q.filters) * c.taps, q.channels / larger(1, q.groups));
  const bool long_y = made.y && too_long(Wide(p.batch) * c.out.product(), row_y);
  return long_x || long_w || long_y ? &amd_copied : nullptr;
}

inline const Rule *broken_tiles(const Tiles &t, const Conv &c) {
  if (c.p.batch == 0 && c.p.variant != backward_weight) return nullptr;
  if (!t.copies) return broken(t, c);
  const Copied made = copied(t, c);
  const Rule *copies = broken_copies(c, made);
  return copies != nullptr ? copies : broken(t, Conv(made.p));
}

}  // namespace hip_conv
}  // namespace selection
}  // namespace tw
