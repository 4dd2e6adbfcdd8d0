// What lines and k of a gathered operand say: where their elements lie, and which of them are there.
#pragma once
#include <tilewright/cuda/conv/gather/shape.h>

#ifdef TW_ON_GPU
namespace tw {

// A line's or a k's part of an element's address, in elements, and its bits.
struct alignas(8) GatherEntry {
  unsigned at, bits;
};

// One group's tiles of one class.
template <class S> struct GatherTraversal {
  static constexpr bool weight = S::weight, data = S::variant == ConvVariant::backward_data;
  // Bits beyond those of taps: of lines and k that are there, and of such as are not.
  static constexpr unsigned there = 1u << gather_bits, nowhere = 1u << (gather_bits + 1);

  const ConvGatherArgs &x;
  int rest[3];  // the class, an axis each
  int deep;     // k

  TW_GPU GatherTraversal(const ConvGatherArgs &args, int number) : x(args) {
    int taps = 1;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      rest[i] = 0;
      if constexpr (data) rest[i] = number % x.axes[i].classes, number /= x.axes[i].classes;
      taps *= int(x.axes[i].taps[rest[i]].by);
    }
    deep = weight ? x.places : taps * int(x.inner.by);
  }

  TW_GPU const Divider &taps(int i) const { return x.axes[i].taps[rest[i]]; }
  // Where w begins for this class.
  TW_GPU unsigned first_tap() const {
    return x.axes[0].first_tap[rest[0]] + x.axes[1].first_tap[rest[1]] + x.axes[2].first_tap[rest[2]];
  }

  // Digits of a place: width, height, depth, image.
  struct Digits {
    int at[4];
  };
  TW_GPU Digits digits(int number) const {
    Digits made;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int up = x.axes[i].grid.quotient(number);
      made.at[i] = number - up * int(x.axes[i].grid.by);
      number = up;
    }
    made.at[3] = number;
    return made;
  }
  // The taps of an axis that meet the tensor, when the first one meets the pixel `first`.
  TW_GPU unsigned met(int i, int first) const {
    const GatherAxis &axis = x.axes[i];
    const int apart = int(axis.apart.by), last = axis.extent - 1;
    int low, high;
    if (axis.backwards) {
      high = first < 0 ? -1 : axis.apart.quotient(first);
      low = first > last ? axis.apart.quotient(first - last + apart - 1) : 0;
    } else {
      low = first < 0 ? axis.apart.quotient(apart - 1 - first) : 0;
      high = first > last ? -1 : axis.apart.quotient(last - first);
    }
    const int most = int(taps(i).by) - 1;
    high = high < most ? high : most;
    return low > high ? 0u : (2u << high) - (1u << low);
  }
  // What a place says of the gathered tensor.
  TW_GPU GatherEntry gathered(const Digits &place) const {
    GatherEntry made{unsigned(place.at[3]) * x.gathered_image, there};
    int shift = 0;
    bool inside = true;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const GatherAxis &axis = x.axes[i];
      const int first = axis.first[rest[i]] + place.at[i] * axis.step;
      made.at += unsigned(first) * axis.gathered;
      made.bits |= met(i, first) << shift;
      shift += int(taps(i).by);
      if constexpr (data) inside = inside && rest[i] + place.at[i] * axis.spread < axis.inside;
    }
    if (!inside) made.bits = 0;
    return made;
  }
  // Digits of a tap: width, height, depth.  Its bits, and its places in the gathered tensor and in w.
  struct Tap {
    unsigned bits, gathered, weights;
  };
  TW_GPU Tap tap(int number) const {
    Tap made{};
    int shift = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int up = i < 2 ? taps(i).quotient(number) : 0, at = number - up * int(taps(i).by);
      made.bits |= 1u << (shift + at);
      made.gathered += unsigned(at) * x.axes[i].pitch;
      made.weights += unsigned(at) * x.axes[i].tap;
      shift += int(taps(i).by);
      number = up;
    }
    return made;
  }

  // What a k says, of A and of B.  `end`: where this split of k is over.
  TW_GPU void of_k(int k, int end, GatherEntry &a, GatherEntry &b) const {
    a = b = GatherEntry{0, weight ? 0 : nowhere};
    if (k >= end) return;
    if constexpr (weight) {
      const Digits place = digits(k);
      b = gathered(place);
      a = GatherEntry{own(place), b.bits};
    } else {
      const int number = x.inner.quotient(k);
      const unsigned channel = unsigned(k - number * int(x.inner.by));
      const Tap one = tap(number);
      a = GatherEntry{one.gathered + channel * x.a_inner, one.bits};
      b = GatherEntry{one.weights + channel * x.b_inner, one.bits};
    }
  }
  // What a line says.
  static TW_GPU GatherEntry no_line_a() { return GatherEntry{0, weight ? nowhere : 0}; }
  TW_GPU GatherEntry of_line_a(int line) const {
    if (line >= x.m) return no_line_a();
    if constexpr (weight) return GatherEntry{unsigned(line) * x.line, there};
    else return gathered(digits(line));
  }
  TW_GPU GatherEntry of_line_b(int line) const {
    if constexpr (weight) {
      if (line >= x.n) return GatherEntry{0, nowhere};
      const int number = x.inner.quotient(line);
      const Tap one = tap(number);
      return GatherEntry{one.gathered + unsigned(line - number * int(x.inner.by)) * x.b_inner, one.bits};
    } else {
      return GatherEntry{first_tap() + unsigned(line) * x.line, line < x.n ? nowhere - 1 : 0};
    }
  }
  // Whether there is an element: what is tested is a tap's bits, of the place's.
  static TW_GPU bool meets(unsigned line, unsigned k) { return (line & k) == (weight ? line : k); }

  // Of the tensor that places lie in.
  TW_GPU unsigned own(const Digits &place) const {
    unsigned at = unsigned(place.at[3]) * x.place_image;
#pragma unroll
    for (int i = 0; i < 3; ++i) at += x.axes[i].rest[rest[i]] + unsigned(place.at[i]) * x.axes[i].place;
    return at;
  }
  // Whether a place is a pixel of it.
  TW_GPU bool inside(const Digits &place) const {
    bool is = true;
#pragma unroll
    for (int i = 0; i < 3; ++i) is = is && rest[i] + place.at[i] * x.axes[i].spread < x.axes[i].inside;
    return is;
  }
};

}  // namespace tw
#endif
