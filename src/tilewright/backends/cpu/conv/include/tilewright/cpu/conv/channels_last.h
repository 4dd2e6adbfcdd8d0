// Memory whose channels lie apart (channels-first above all), for kernels that want them side by side.
//
// What lies otherwise is transposed into a part of the workspace before a kernel runs and transposed back after it, images
// together that fit a cache: a kernel's results are read again while they are near.  Weights are transposed once.
#pragma once
#include <tilewright/cpu/conv/geometry.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/cpu/copies/transpose.h>

namespace tw {

template <int Bytes> struct raw;
template <> struct raw<1> {
  using type = uint8_t;
};
template <> struct raw<2> {
  using type = uint16_t;
};
template <> struct raw<4> {
  using type = uint32_t;
};

// One of x, w, y and the D tensors, in images (filters) of pixels (taps) of channels.
struct Transposable {
  char *data;
  const int64_t *strides;  // its own
  const int64_t *size;     // of the pixels
  int64_t images, channels, bytes;
  int64_t pitch;  // of a pixel of the copy, in elements

  TW_INLINE int64_t apart() const { return pixels() * pitch; }  // images of the copy
  TW_INLINE int64_t pixels() const { return size[0] * size[1] * size[2]; }
};

constexpr int64_t pixels_at_once = 64;  // pixels: lines of a cache are read and written whole

// Pixels [first, first + count) of those that lie evenly apart, by `step`.
template <class T, bool In> TW_INLINE void transpose_pixels(T *apart, int64_t step, int64_t across, T *copy,
                                                            int64_t pitch, int64_t channels, int64_t count) {
  if (step == 1) {
    if constexpr (In) Transpose<T>{apart, across, channels, count, copy, pitch}.by_rows();
    else Transpose<T>{copy, pitch, count, channels, apart, across}.by_columns();
    return;
  }
  for (int64_t p = 0; p < count; ++p)
    for (int64_t c = 0; c < channels; ++c) {
      if constexpr (In) copy[p * pitch + c] = apart[p * step + c * across];
      else apart[p * step + c * across] = copy[p * pitch + c];
    }
}
// Images of an operand from its memory into a copy, or back; part `index` of `parts`.
template <class T, bool In>
void transpose_images(const Transposable &t, int64_t first, int64_t images, void *copy, int64_t index, int64_t parts) {
  const int64_t *s = t.strides;
  const bool planes =
      (t.size[1] == 1 || s[2] == s[3] * t.size[2]) && (t.size[0] == 1 || s[1] == s[3] * t.size[2] * t.size[1]);
  int64_t run = planes ? t.pixels() : t.size[2], lines = t.pixels() / run;
  int64_t blocks = (run + pixels_at_once - 1) / pixels_at_once, all = images * lines * blocks;
  for (int64_t i = index * all / parts; i < (index + 1) * all / parts; ++i) {
    int64_t block = i % blocks * pixels_at_once, line = i / blocks % lines, image = i / blocks / lines;
    int64_t at = (first + image) * s[0] + block * s[3];
    if (!planes) at += line % t.size[1] * s[2] + line / t.size[1] * s[1];
    T *to = static_cast<T *>(copy) + image * t.apart() + (line * run + block) * t.pitch;
    transpose_pixels<T, In>(reinterpret_cast<T *>(t.data) + at, s[3], s[4], to, t.pitch, t.channels,
                            least(pixels_at_once, run - block));
  }
}

// Whether a kernel takes operand `i` as it lies although its channels lie apart: those that say so.
template <class Work> TW_INLINE auto takes(const tw_conv_args &x, int i, int) -> decltype(Work::takes(x, i)) {
  return Work::takes(x, i);
}
template <class Work> TW_INLINE bool takes(const tw_conv_args &, int, long) { return false; }

template <class Config, class Work> struct ConvChannelsLast {
  using In = typename raw<sizeof(typename Config::A)>::type;
  using Out = typename raw<sizeof(typename Config::C)>::type;
  using More = typename raw<sizeof(typename Config::D)>::type;
  static constexpr ConvVariant way = Config::variant;
  static constexpr int last = TW_CONV_SPATIAL + 1, operands = 3 + TW_CONV_MAX_D;
  static constexpr int result = way == ConvVariant::forward ? 2 : way == ConvVariant::backward_data ? 0 : 1;
  static constexpr int64_t near_bytes = 3 << 20;   // of the copies of some images,
  static constexpr int64_t group_bytes = 1 << 20;  // and of those of some groups
  static constexpr int64_t few_channels = 8;       // of a group that is one of some

  static TW_INLINE Transposable operand(const tw_conv_args &x, int index) {
    int64_t in = sizeof(In), out = sizeof(Out), more = sizeof(More);
    if (index == 0)
      return {static_cast<char *>(x.x), x.x_strides, x.size, x.batch, x.groups * x.channels, result == 0 ? out : in, 0};
    if (index == 1)
      return {
          static_cast<char *>(x.w), x.w_strides, x.window, x.groups * x.filters, x.channels, result == 1 ? out : in, 0};
    if (index == 2)
      return {static_cast<char *>(x.y), x.y_strides, x.out, x.batch, x.groups * x.filters, result == 2 ? out : in, 0};
    return {static_cast<char *>(const_cast<void *>(x.d[index - 3])),
            x.d_strides[index - 3],
            x.out,
            x.batch,
            x.groups * x.filters,
            more,
            0};
  }
  static TW_INLINE bool apart(const tw_conv_args &x, int index) {
    if (index >= 3 + Config::num_d) return false;
    int64_t step = operand(x, index).strides[last];
    return step != 1 && (index < 3 || step != 0) && !takes<Work>(x, index, 0);
  }
  static TW_INLINE bool any_apart(const tw_conv_args &x) {
    for (int i = 0; i < operands; ++i)
      if (apart(x, i)) return true;
    return false;
  }
  // What of the copies lies where in the workspace, and the problem a kernel is given.
  struct Plan {
    Transposable of[operands];
    bool transposed[operands];
    int64_t at[operands];
    int64_t images, bytes;  // at a time; of all copies
    tw_conv_args inner;
  };
  static TW_INLINE Plan plan(const tw_conv_args &x) {
    Plan p{};
    p.inner = x;
    int64_t each = 0;
    for (int i = 0; i < operands; ++i) {
      p.transposed[i] = apart(x, i);
      if (!p.transposed[i]) continue;
      Transposable &t = p.of[i] = operand(x, i);
      t.pitch = t.channels;
      // Neighbours that would share the few sets of a first-level cache lie a line further apart.
      if (i != 1 && t.channels * t.bytes % 1024 == 0) t.pitch += 64 / t.bytes;
      int64_t *s = i == 0   ? p.inner.x_strides
                   : i == 1 ? p.inner.w_strides
                   : i == 2 ? p.inner.y_strides
                            : p.inner.d_strides[i - 3];
      s[4] = 1;
      s[3] = t.pitch;
      for (int axis = 2; axis >= 0; --axis) s[axis] = s[axis + 1] * t.size[axis];
      if (i != 1) each += t.apart() * t.bytes;
    }
    p.images = x.batch;
    if (way != ConvVariant::backward_weight && each > 0) p.images = most(1, least(x.batch, near_bytes / each));
    for (int i = 0; i < operands; ++i)
      if (p.transposed[i]) {
        p.at[i] = p.bytes;
        p.bytes += up((i == 1 ? p.of[i].images : p.images) * p.of[i].apart() * p.of[i].bytes, 64);
      }
    return p;
  }
  static TW_INLINE tw_conv_args of_images(const tw_conv_args &inner, int64_t images) {
    tw_conv_args some = inner;
    some.batch = images;
    return some;
  }

  // Of a Work that says itself what it refuses (TW_EXPORT_CONV).
  static Answer broken(const tw_conv_args &x) { return Work::broken(x); }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    if (!any_apart(x)) return Work::workspace(x, threads);
    const int64_t some = groups_at_a_time(x), rest = x.groups % some;
    const int64_t most_of = transposed_workspace(of_groups(x, 0, some), threads);
    return rest ? most(most_of, transposed_workspace(of_groups(x, 0, rest), threads)) : most_of;
  }
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    if (!any_apart(x)) return Work::launch(x, workspace, stream);
    const int64_t some = groups_at_a_time(x);
    int status = TW_OK;
    for (int64_t first = 0; first < x.groups && !status; first += some)
      status = transposed(of_groups(x, first, least(some, x.groups - first)), workspace, stream);
    return status;
  }

  // Gradients of the weights of many small groups need all images: some groups at a time, so that what is transposed of them
  // stays near.  (Forward and backward-data, images at a time are quicker than groups.)
  static TW_INLINE int64_t groups_at_a_time(const tw_conv_args &x) {
    const int64_t wide = most(x.channels, x.filters), grain = most(1, 64 / wide);
    if (way != ConvVariant::backward_weight || wide > few_channels || x.groups <= grain) return x.groups;
    int64_t each = 0;
    for (int i = 0; i < operands; ++i)
      if (i != 1 && apart(x, i))
        each += operand(x, i).pixels() * operand(x, i).channels * operand(x, i).bytes * x.batch;
    if (each <= group_bytes) return x.groups;
    return least(x.groups, most(1, group_bytes / most(1, each / x.groups) / grain) * grain);
  }
  static TW_INLINE tw_conv_args of_groups(const tw_conv_args &x, int64_t first, int64_t groups) {
    tw_conv_args some = x;
    some.groups = groups;
    auto moved = [](const void *at, int64_t elements, int64_t bytes) {
      return static_cast<char *>(const_cast<void *>(at)) + elements * bytes;
    };
    some.x = moved(x.x, first * x.channels * x.x_strides[last], operand(x, 0).bytes);
    some.w = moved(x.w, first * x.filters * x.w_strides[0], operand(x, 1).bytes);
    some.y = moved(x.y, first * x.filters * x.y_strides[last], operand(x, 2).bytes);
    for (int t = 0; t < Config::num_d; ++t)
      some.d[t] = moved(x.d[t], first * x.filters * x.d_strides[t][last], sizeof(More));
    return some;
  }

  static int64_t transposed_workspace(const tw_conv_args &x, int64_t threads) {
    const Plan p = plan(x);
    int64_t own = Work::workspace(of_images(p.inner, p.images), threads), rest = x.batch % most(1, p.images);
    if (rest) own = most(own, Work::workspace(of_images(p.inner, rest), threads));
    return p.bytes + 64 + own;
  }

  // Images [first, first + images) of an operand, or all filters.
  template <bool To> static void transpose(const Plan &p, int i, int64_t first, int64_t images, char *copies,
                                           int64_t index, int64_t parts) {
    if (i == result) transpose_images<Out, To>(p.of[i], first, images, copies + p.at[i], index, parts);
    else if (To && i < 3) transpose_images<In, true>(p.of[i], first, images, copies + p.at[i], index, parts);
    else if (To) transpose_images<More, true>(p.of[i], first, images, copies + p.at[i], index, parts);
  }
  static __attribute__((noinline)) int transposed(const tw_conv_args &x, void *workspace, void *stream) {
    const Plan p = plan(x);
    auto *copies = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    const int64_t parts = 2 * team_size(stream);
    int status = TW_OK;
    for (int64_t first = 0; first < most(1, x.batch) && !status; first += most(1, p.images)) {
      const int64_t images = least(p.images, x.batch - first);
      tw_conv_args some = of_images(p.inner, images);
      bool any = false;
      for (int i = 0; i < operands; ++i) {
        void *at = i < 3 + Config::num_d ? place(p, x, i, first, copies) : nullptr;
        if (i == 0) some.x = at;
        else if (i == 1) some.w = at;
        else if (i == 2) some.y = at;
        else some.d[i - 3] = at;
        any |= p.transposed[i] && i != result && (i != 1 || first == 0);
      }
      if (any)
        parallel(stream, parts, [&](int64_t index) {
          for (int i = 0; i < operands; ++i)
            if (p.transposed[i] && i != result && (i != 1 || first == 0))
              transpose<true>(p, i, i == 1 ? 0 : first, i == 1 ? p.of[i].images : images, copies, index, parts);
        });
      status = Work::launch(some, copies + p.bytes, stream);
      if (p.transposed[result] && !status)
        parallel(stream, parts, [&](int64_t index) {
          transpose<false>(p, result, result == 1 ? 0 : first, result == 1 ? p.of[1].images : images, copies, index,
                           parts);
        });
    }
    return status;
  }
  // Where a kernel reads or writes an operand from image `first` on.
  static TW_INLINE void *place(const Plan &p, const tw_conv_args &x, int i, int64_t first, char *copies) {
    if (p.transposed[i]) return copies + p.at[i];
    const Transposable t = operand(x, i);
    return t.data + (i == 1 ? 0 : first * t.strides[0] * t.bytes);
  }
};

}  // namespace tw
