// The operands of an implicit GEMM as words (see dot.h): weights packed into panels, and where the other operand
// cannot be read as it lies (narrow floats without a dot product of their own, bytes, odd channels), a copy of it.
//
// Groups with few channels of the result are merged into a *bundle* that fills a panel: its weights are a matrix of
// blocks with zeros between them.
#pragma once
#include <tilewright/cpu/conv/geometry.h>
#include <tilewright/cpu/copies/pack.h>

namespace tw {

// One bundle of groups: `depth` channels are summed over, `columns` come out.
struct Bundle {
  int64_t groups, count;   // groups in one, and how many there are
  int64_t depth, columns;  // of one
  int64_t words;           // of `depth`, in one tap
  int64_t group_depth, group_columns;
  bool copied;    // the gathered operand is read from a copy, a part for each bundle,
  int64_t pixel;  // whose pixels are so many words apart,
  int64_t part;   // of so many words: a line of zeros and the pixels
};

template <class Dot, ConvVariant Way> TW_INLINE Bundle bundle_of(const tw_conv_args &x, int64_t panel) {
  Bundle b{};
  b.group_depth = Way == ConvVariant::forward ? x.channels : x.filters;
  b.group_columns = Way == ConvVariant::forward ? x.filters : x.channels;
  b.groups = least(x.groups, most(1, panel / most(1, b.group_columns)));
  while (x.groups % b.groups) --b.groups;
  b.count = x.groups / b.groups;
  b.depth = b.groups * b.group_depth;
  b.columns = b.groups * b.group_columns;
  b.words = (b.depth + Dot::step - 1) / Dot::step;
  return b;
}

// Weights of one tap: words [first, first + count) of the bundle's depth, columns [column, column + NR), as
// out[word * NR + column]; column sums are added to `totals` where the dot product needs them.
template <class Dot, ConvVariant Way, int Vectors> struct TapPacker {
  static constexpr int width = Vectors * lanes;

  template <class T> static TW_INLINE void tap(const tw_conv_args &x, const Bundle &b, int64_t bundle, int64_t offset,
                                               int64_t column, int64_t first, int64_t count, uint32_t *out,
                                               int32_t *totals) {
    const T *w = static_cast<const T *>(x.w) + bundle * b.groups * x.filters * x.w_strides[0] + offset;
    int32_t own[width];
    if (b.groups > 1) blocks(x, b, w, column, first, count, out, own);
    else plain(x, b, w, column, first, count, out, own);
    if constexpr (Dot::offset)
      for (int j = 0; j < width; ++j) totals[j] += own[j];
    (void)totals;
  }

 private:
  template <class T> static TW_INLINE void plain(const tw_conv_args &x, const Bundle &b, const T *w, int64_t column,
                                                 int64_t first, int64_t count, uint32_t *out, int32_t *own) {
    int64_t step = x.w_strides[0], from = first * Dot::step, columns = b.columns - column;
    int64_t depth = least(count * Dot::step, b.depth - from);
    if constexpr (Way == ConvVariant::forward)
      pack_b<Dot, false, Vectors>(w + column * step + from, step, columns, depth, out, own);
    else pack_b<Dot, true, Vectors>(w + from * step + column, step, columns, depth, out, own);
  }
  // Several groups: what lies between their blocks is 0.
  template <class T> static __attribute__((noinline)) void blocks(const tw_conv_args &x, const Bundle &b, const T *w,
                                                                  int64_t column, int64_t first, int64_t count,
                                                                  uint32_t *out, int32_t *own) {
    vi accum[Vectors] = {};
    for (int64_t word = 0; word < count; ++word)
      for (int v = 0; v < Vectors; ++v) {
        T part[Dot::step * lanes];
        __builtin_memset(part, 0, sizeof part);
        for (int s = 0; s < Dot::step; ++s)
          for (int l = 0; l < lanes; ++l) {
            int64_t row = (first + word) * Dot::step + s, j = column + v * lanes + l;
            if (row >= b.depth || j >= b.columns || row / b.group_depth != j / b.group_columns) continue;
            int64_t filter = Way == ConvVariant::forward ? j : row;
            int64_t channel = Way == ConvVariant::forward ? row % b.group_depth : j % b.group_columns;
            part[s * lanes + l] = w[filter * x.w_strides[0] + channel];
          }
        vu words = Dot::across(static_cast<const T *>(part), lanes);
        store_u(out + word * width + v * lanes, words);
        count_in<Dot>(accum[v], words);
      }
    if constexpr (Dot::offset)
      for (int v = 0; v < Vectors; ++v) store_u(own + v * lanes, vu(accum[v]) * uint32_t(-128));
  }
};

// What a gather reads: where it begins, and its strides in bytes.
struct Source {
  const char *at;
  int64_t image, axis[TW_CONV_SPATIAL], bundle;
  const char *zeros;  // what lies outside: a line of zeros, of which each bundle has its part as of a pixel
};

// The operand that is gathered: x going forward, y going backward.
template <ConvVariant Way> struct Gathered {
  static TW_INLINE const void *data(const tw_conv_args &x) { return Way == ConvVariant::forward ? x.x : x.y; }
  static TW_INLINE const int64_t *strides(const tw_conv_args &x) {
    return Way == ConvVariant::forward ? x.x_strides : x.y_strides;
  }
  static TW_INLINE const int64_t *sizes(const tw_conv_args &x) { return Way == ConvVariant::forward ? x.size : x.out; }
};

// Lines that a first-level cache of today keeps of those `apart` bytes from one to the next.
TW_INLINE int64_t cache_lines(int64_t apart) {
  constexpr int64_t way = 4096, ways = 8;  // bytes of one way, and how many there are
  return ways * way / (apart ? common_divisor(apart < 0 ? -apart : apart, way) : 1);
}

// Whether the gathered operand can be read where it lies, by `rows` pointers at a time.  Words must be whole; and where
// pixels lie so that those of neighbours share the few sets of a first-level cache, each would push out the other.
template <class Dot, ConvVariant Way, class T> TW_INLINE void settle(const tw_conv_args &x, Bundle &b, int64_t rows) {
  b.copied = Dot::offset || Dot::step * sizeof(T) != 4 || b.depth % Dot::step != 0;
  b.pixel = b.words;
  int64_t apart = Gathered<Way>::strides(x)[3] * int64_t(sizeof(T)) * (Way == ConvVariant::forward ? x.stride[2] : 1);
  if (!b.copied && rows > cache_lines(apart) * 3 / 4) b.copied = true;
  if (b.copied && b.pixel % 256 == 0) b.pixel += 16;
}

// Words of the copy, whose lines of zeros have `line` words.
template <ConvVariant Way> TW_INLINE int64_t copied_words(const tw_conv_args &x, Bundle &b, int64_t line) {
  const int64_t *size = Gathered<Way>::sizes(x);
  b.part = line + up(x.batch * size[0] * size[1] * size[2] * b.pixel, 16);
  return b.copied ? b.count * b.part : 0;
}

// Pixels of one or three halves, as first layers have: a word or two each, without masks.
template <class T> TW_INLINE bool copy_few(const T *from, int64_t apart, int64_t count, int64_t halves, uint32_t *out) {
  static_assert(sizeof(T) == 2, "halves");
  if (halves == 1)
    for (int64_t i = 0; i < count; ++i) {
      uint16_t only;
      __builtin_memcpy(&only, from + i * apart, 2);
      out[i] = only;
    }
  else if (halves == 3)
    for (int64_t i = 0; i < count; ++i) {
      uint16_t last;
      __builtin_memcpy(out + 2 * i, from + i * apart, 4);
      __builtin_memcpy(&last, from + i * apart + 2, 2);
      out[2 * i + 1] = last;
    }
  return halves == 1 || halves == 3;
}

// Lines (the pixels of one width) [first, last) of the copy, whose first pixel is at `copy`.
template <class Dot, ConvVariant Way, class T>
void copy_lines(const tw_conv_args &x, const Bundle &b, int64_t first, int64_t last, uint32_t *copy) {
  using G = Gathered<Way>;
  const int64_t *size = G::sizes(x), *strides = G::strides(x);
  for (int64_t line = first; line < last; ++line) {
    int64_t height = line % size[1], depth = line / size[1] % size[0], image = line / size[1] / size[0];
    const T *from = static_cast<const T *>(G::data(x)) + image * strides[0] + depth * strides[1] + height * strides[2];
    if constexpr (sizeof(T) == 2 && Dot::step == 2)
      if (b.count == 1 && b.pixel == b.words &&
          copy_few(from, strides[3], size[2], b.depth, copy + line * size[2] * b.pixel))
        continue;
    for (int64_t bundle = 0; bundle < b.count; ++bundle)
      pack_a<Dot, true>(from + bundle * b.depth, strides[3], size[2], size[2], b.depth,
                        copy + bundle * b.part + line * size[2] * b.pixel, b.pixel);
  }
}

// `zeros`: a line of them, behind which the copy begins.
template <ConvVariant Way, class T>
TW_INLINE Source source_of(const tw_conv_args &x, const Bundle &b, const uint32_t *zeros, int64_t line) {
  using G = Gathered<Way>;
  Source s{};
  s.zeros = reinterpret_cast<const char *>(zeros);
  if (!b.copied) {
    s.at = static_cast<const char *>(G::data(x));
    s.image = G::strides(x)[0] * int64_t(sizeof(T));
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis) s.axis[axis] = G::strides(x)[axis + 1] * int64_t(sizeof(T));
    s.bundle = b.depth * int64_t(sizeof(T));
    return s;
  }
  const int64_t *size = G::sizes(x);
  s.at = reinterpret_cast<const char *>(zeros + line);
  s.bundle = b.part * 4;
  s.axis[2] = b.pixel * 4;
  s.axis[1] = size[2] * s.axis[2];
  s.axis[0] = size[1] * s.axis[1];
  s.image = size[0] * s.axis[0];
  return s;
}

}  // namespace tw
