// A convolution as selection sees it, and the rules by which kernels refuse one.
#pragma once
#include <tilewright/select/fields.h>
#include <tilewright/select/rules.h>

namespace tw {
namespace selection {

// Sizes of an image of one or two dimensions stand in the last ones; those it lacks are 1 (before: 0), and so are
// their strides those of the image.  Strides are in elements: image (w: filter), spatial, channel.
// clang-format off
#define TW_SELECT_CONV_PROBLEM(X) \
  X(variant) X(dims) X(batch) X(channels) X(filters) X(groups) X(size_0) X(size_1) X(size_2) X(window_0) X(window_1) \
  X(window_2) X(stride_0) X(stride_1) X(stride_2) X(dilation_0) X(dilation_1) X(dilation_2) X(before_0) X(before_1) \
  X(before_2) X(after_0) X(after_1) X(after_2) X(out_0) X(out_1) X(out_2) X(x_image) X(x_0) X(x_1) X(x_2) X(x_channel) \
  X(w_filter) X(w_0) X(w_1) X(w_2) X(w_channel) X(y_image) X(y_0) X(y_1) X(y_2) X(y_channel) X(size) X(size_out) \
  X(size_d) X(num_d) X(full_d) X(plain) X(aligned) X(deterministic)
// clang-format on
TW_SELECT_STRUCT(ConvProblem, int, TW_SELECT_CONV_PROBLEM)

enum Variant : int64_t { forward, backward_data, backward_weight };

// Three sizes as an array.
struct Sizes {
  int64_t at[3];
  int64_t operator[](int axis) const { return at[axis]; }
  int64_t product() const { return at[0] * at[1] * at[2]; }
};

// A problem with its sizes as arrays, and what follows from them.
struct Conv {
  using Problem = ConvProblem;
  static const char *names() { return ConvProblem_names(); }
  const ConvProblem &p;
  Sizes size, window, stride, dilation, before, out;
  int64_t group_channels, group_filters, taps;
  double moved;  // bytes: each operand read once, the result written once

  explicit Conv(const ConvProblem &given)
      : p(given),
        size{{given.size_0, given.size_1, given.size_2}},
        window{{given.window_0, given.window_1, given.window_2}},
        stride{{given.stride_0, given.stride_1, given.stride_2}},
        dilation{{given.dilation_0, given.dilation_1, given.dilation_2}},
        before{{given.before_0, given.before_1, given.before_2}},
        out{{given.out_0, given.out_1, given.out_2}},
        group_channels(given.channels / larger(1, given.groups)),
        group_filters(given.filters / larger(1, given.groups)),
        taps(window.product()),
        moved(bytes()) {}

  double x_elements() const { return double(Wide(p.batch) * size.product() * p.channels); }
  double w_elements() const { return double(Wide(p.filters) * taps * group_channels); }
  double y_elements() const { return double(Wide(p.batch) * out.product() * p.filters); }

  double bytes() const {
    const double x = x_elements(), w = w_elements(), y = y_elements();
    const double written = p.variant == forward ? y : p.variant == backward_data ? x : w;
    const double d = double(p.full_d) * y + double((p.num_d - p.full_d) * p.filters);
    return (x + w + y - written) * double(p.size) + written * double(p.size_out) + d * double(p.size_d);
  }
  bool channels_last() const { return p.x_channel == 1 && p.w_channel == 1 && p.y_channel == 1; }
};

inline const char *names_of(const Conv &) { return ConvProblem_names(); }
inline const ConvProblem &numbers_of(const Conv &c) { return c.p; }

// A convolution with what its cost is counted in.
template <class Rates, class Arch> struct ConvQuery {
  const Conv &c;
  const Rates &rate;
  const Arch &arch;
  const Host &host;
  static ConvQuery of(const Conv &conv, const Rates &rate, const Arch &arch, const Host &host) {
    return {conv, rate, arch, host};
  }
  const Conv &problem() const { return c; }
};

// Whether pixels lie at equal distances, images too; a stride along one pixel says nothing.
inline bool dense_pixels(int64_t image, int64_t s0, int64_t s1, int64_t s2, int64_t images, const Sizes &shape) {
  if (shape[1] > 1 && s1 != s2 * shape[2]) return false;
  if (shape[0] > 1 && s0 != s2 * shape[2] * shape[1]) return false;
  return images == 1 || image == s2 * shape.product();
}

// The strides of an operand, and how many channels one of its groups has.
struct Strides {
  int64_t image, at[3], channel, channels;
};
inline Strides x_strides(const Conv &c) {
  return {c.p.x_image, {c.p.x_0, c.p.x_1, c.p.x_2}, c.p.x_channel, c.group_channels};
}
inline Strides w_strides(const Conv &c) {
  return {c.p.w_filter, {c.p.w_0, c.p.w_1, c.p.w_2}, c.p.w_channel, c.group_channels};
}
inline Strides y_strides(const Conv &c) {
  return {c.p.y_image, {c.p.y_0, c.p.y_1, c.p.y_2}, c.p.y_channel, c.group_filters};
}

// Whether channels lie side by side in whole vectors of so many.
inline bool in_vectors(const Conv &c, const Strides &s, int64_t vector) {
  return c.p.aligned && s.channel == 1 && s.image % vector == 0 && s.at[0] % vector == 0 && s.at[1] % vector == 0 &&
         s.at[2] % vector == 0 && s.channels % vector == 0;
}

}  // namespace selection
}  // namespace tw
