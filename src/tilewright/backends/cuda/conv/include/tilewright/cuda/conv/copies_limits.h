// Convolutions in copies of their operands, of what is not aligned or whose channels lie apart: which copies are made,
// and the problem that they are of.
#pragma once
#include <tilewright/cuda/conv/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {

TW_CONV_RULE(nothing_transposed, "nv-padded", "memory is channels-last already: nothing needs to be copied")
TW_CONV_RULE(pieces_of_groups, "nv-groups",
             "the channels or filters of a group, or of merged groups, are not a multiple of 16 bytes")
TW_CONV_RULE(joined_few, "nv-groups",
             "wgrad of merged groups of fewer than 8 channels and more filters is not computed in copies")
TW_CONV_RULE(stride_below_1, "nv-padded", "a stride is below 1")
TW_CONV_RULE(strips_fit, "nv-padded", "channels can be read in vectors of 4, which other kernels do in place")
TW_CONV_RULE(nothing_copied, "nv-padded", "nothing needs to be copied")
TW_CONV_RULE(copies_large, "nv-walk", "2^31 or more elements to copy")

// Whether a kernel makes copies: none; where channels lie apart; to fill channels up, too.
enum Copies : int64_t { in_place, where_apart, filled_up };

// What a family requires of operands that copies are made of (cuda/conv/host_copies.h).
struct Needs {
  bool whole_groups = false;  // groups of one channel and one filter, whole 16 bytes of them
  bool any_filters = false;   // w may lie anywhere, if channels are side by side and taps even; groups are joined
  bool any_pixels = false;    // x may, and w where its taps are even: channels apart, too
};

// Which of x, w and y are copied, and the problem of the copies.
struct Padded {
  ConvProblem larger;
  bool x, w, y;
  bool any() const { return x || w || y; }
};

inline bool in_lines(const Conv &c, const Strides &s, int64_t size) {
  return c.p.aligned && !odd_bytes(s.image, size) && !odd_bytes(s.at[0], size) && !odd_bytes(s.at[1], size) &&
         !odd_bytes(s.at[2], size);
}

// Groups of one channel, or the channels and filters of one group, are filled up to whole 16 bytes.  Copied are those of
// which there is more, unaligned ones, uneven pixels, channels apart.  The filters of joined groups are spread or picked
// element by element, whatever taps and filters lie apart.
inline Padded padded(const Needs &needs, const Conv &c) {
  const ConvProblem &p = c.p;
  const bool data = p.variant == backward_data;
  const int64_t piece = kLineBytes / p.size;
  Padded made{p, false, false, false};
  ConvProblem &q = made.larger;
  if (needs.whole_groups) {
    q.groups = round_up(p.groups, piece);
    q.channels = q.groups * c.group_channels, q.filters = q.groups * c.group_filters;
  } else if (p.groups == 1) {
    if (!needs.any_pixels) q.channels = round_up(p.channels, piece);
    q.filters = round_up(p.filters, piece);
  }
  const bool more_x = q.channels != p.channels, more_y = q.filters != p.filters;
  const int64_t size_x = data ? p.size_out : p.size, size_w = p.variant == backward_weight ? p.size_out : p.size;
  const int64_t size_y = p.variant == forward ? p.size_out : p.size;
  const bool loose_x = (data && !even_x(c, p.batch)) || !in_lines(c, x_strides(c), size_x) || p.x_channel != 1;
  bool loose_w = needs.any_filters ? !p.aligned : !in_lines(c, w_strides(c), size_w);
  loose_w = loose_w || (p.w_channel != 1 && !(needs.any_filters && needs.whole_groups));
  made.x = more_x || (!needs.any_pixels && loose_x);
  made.w = more_x || more_y || !even_taps(c) || (!needs.any_pixels && loose_w);
  made.y = more_y || (!data && !even_y(c, p.batch)) || !in_lines(c, y_strides(c), size_y) || p.y_channel != 1;
  if (made.x) lay_x(q, dense_strides(c.size, q.channels));
  if (made.w) lay_w(q, dense_strides(c.window, q.channels / larger(1, q.groups)));
  if (made.y) lay_y(q, dense_strides(c.out, q.filters));
  q.aligned = 1;
  return made;
}

// Of the copies: channels of each are whole 16 bytes, in the filters of joined groups too.
inline Wide copied_x(const Padded &made, const Conv &c) {
  return made.x ? Wide(c.p.batch) * c.size.product() * made.larger.channels : 0;
}
inline Wide copied_w(const Padded &made, const Conv &c) {
  const ConvProblem &q = made.larger;
  return made.w ? Wide(q.filters) * c.taps * round_up(q.channels / larger(1, q.groups), kLineBytes / q.size) : 0;
}
inline Wide copied_y(const Padded &made, const Conv &c) {
  return made.y ? Wide(c.p.batch) * c.out.product() * made.larger.filters : 0;
}

inline bool backwards(const Strides &s) {
  return smaller(smaller(smaller(s.image, s.at[0]), smaller(s.at[1], s.at[2])), s.channel) < 1;
}

// Whether depthwise kernels read it where it lies.
inline bool in_strips(const Conv &c) {
  const ConvProblem &p = c.p;
  bool even = p.aligned && p.x_channel == 1 && p.y_channel == 1 && p.groups % 4 == 0;
  const int64_t strides[] = {p.x_image, p.x_0, p.x_1, p.x_2, p.y_image, p.y_0, p.y_1, p.y_2};
  for (int64_t one : strides) even = even && one % 4 == 0;
  return even;
}

inline const Rule *broken_copies(int64_t copies, const Needs &needs, const Conv &c) {
  const ConvProblem &p = c.p;
  if (c.channels_last() && copies != filled_up) return &nothing_transposed;
  if (needs.whole_groups && !depthwise_groups(c)) return &not_depthwise;
  if (p.batch == 0) return &no_images;
  const int64_t piece = kLineBytes / p.size;
  const int64_t channels = needs.any_filters ? p.channels : c.group_channels;
  const int64_t filters = needs.any_filters ? p.filters : c.group_filters;
  if (p.groups != 1 && !needs.whole_groups && (channels % piece || filters % piece)) return &pieces_of_groups;
  // Kernels of joined groups end in an illegal instruction there (seen on an H200), whatever the tile.
  if (needs.any_filters && !needs.whole_groups && p.groups != 1 && p.variant == backward_data &&
      c.group_channels < piece && c.group_channels != c.group_filters)
    return &joined_few;
  if (backwards(x_strides(c)) || backwards(w_strides(c)) || backwards(y_strides(c))) return &stride_below_1;
  if (needs.whole_groups && in_strips(c)) return &strips_fit;
  const Padded made = padded(needs, c);
  const bool apart = (made.x && p.x_channel != 1) || (made.w && p.w_channel != 1) || (made.y && p.y_channel != 1);
  if (!made.any() || !(copies == filled_up || apart)) return &nothing_copied;
  const bool large = copied_x(made, c) >= kMost || copied_w(made, c) >= kMost || copied_y(made, c) >= kMost;
  return large ? &copies_large : nullptr;
}

// The limits of a family whose kernels run in copies or in place: `inner` are those of the problem as it lies.
template <class Inner>
const Rule *limits_in_copies(int64_t copies, const Needs &needs, const Conv &c, const Inner &inner) {
  if (nothing_written(c)) return nullptr;
  if (copies == in_place) return inner(c);
  if (const Rule *rule = broken_copies(copies, needs, c)) return rule;
  const ConvProblem of_copies = padded(needs, c).larger;
  return inner(Conv(of_copies));
}

}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
