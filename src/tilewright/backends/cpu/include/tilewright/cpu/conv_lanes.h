// Vectors along the channels of the result, for depthwise convolutions and small groups; see conv_strip.h.
//
// A register block is a run of result pixels of one line and one vector of channels: for each tap, one vector of
// weights times as many vectors of the strip, which lie side by side.
#pragma once
#include <tilewright/cpu/conv_strip.h>
#include <tilewright/cpu/conv_words.h>
#include <tilewright/cpu/team.h>

namespace tw {

// `Width` pixels: sums over rows of the window, each with `inner` taps and channels at `offsets`.
template <int Width> __attribute__((noinline)) void lane_block(const float *strip, const WindowRow *rows,
                                                               int64_t number, const int64_t *offsets, int64_t inner,
                                                               const float *weights, int64_t at, float *out,
                                                               int64_t ld) {
  vf sums[Width];
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) sums[i] = vf{};
  for (int64_t r = 0; r < number; ++r) {
    const float *line = strip + rows[r].line + at, *w = weights + rows[r].row * inner * lanes;
    for (int64_t t = 0; t < inner; ++t, w += lanes) {
      const float *from = line + offsets[t];
      vf weight = load_f(w);
#pragma GCC unroll 32
      for (int i = 0; i < Width; ++i) sums[i] = sums[i] + load_f(from + i * lanes) * weight;
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) store_f(out + i * ld, sums[i]);
}

// The same where the taps of the width are `Taps` neighbours: each vector of the strip is loaded once for all of them.
template <int Width, int Taps> __attribute__((noinline)) void sliding_block(const float *strip, const WindowRow *rows,
                                                                            int64_t number, const int64_t *offsets,
                                                                            const float *weights, int64_t at,
                                                                            float *out, int64_t ld) {
  vf sums[Width];
  bool backwards = offsets[Taps - 1] < offsets[0];
  int64_t first = backwards ? offsets[Taps - 1] : offsets[0];
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) sums[i] = vf{};
  for (int64_t r = 0; r < number; ++r) {
    const float *line = strip + rows[r].line + at + first, *w = weights + rows[r].row * Taps * lanes;
    vf weight[Taps];
#pragma GCC unroll 8
    for (int t = 0; t < Taps; ++t) weight[t] = load_f(w + (backwards ? Taps - 1 - t : t) * lanes);
#pragma GCC unroll 40
    for (int j = 0; j < Width + Taps - 1; ++j) {
      vf x = vf(held(load_u(line + j * lanes)));
#pragma GCC unroll 8
      for (int t = 0; t < Taps; ++t)
        if (j - t >= 0 && j - t < Width) sums[j - t] = sums[j - t] + x * weight[t];
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) store_f(out + i * ld, sums[i]);
}

template <class Config> struct ConvLanes {
  using In = typename Config::A;
  using End = ConvFinish<Config>;
  using Sum = typename End::Sum;
  static constexpr ConvVariant way = Config::variant;
  static constexpr int width = Config::warp_tile_m, half = width / 2 < 1 ? 1 : width / 2;
  static constexpr int64_t smallest_share = 1 << 16;  // multiply-adds of vectors below which no thread is woken
  using G = Gather;
  using Strips = Rings<In>;

  static Answer broken(const tw_conv_args &x) { return broken_strip<Config>(x, depth(x)); }

  // ---- sizes -------------------------------------------------------------------------------
  static TW_INLINE int64_t vectors(const tw_conv_args &x) {
    int64_t columns = x.groups * (way == ConvVariant::forward ? x.filters : x.channels);
    return (columns + lanes - 1) / lanes;
  }
  static TW_INLINE int64_t depth(const tw_conv_args &x) { return way == ConvVariant::forward ? x.channels : x.filters; }
  static TW_INLINE int64_t weight_floats(const tw_conv_args &x) {
    return vectors(x) * x.window[0] * x.window[1] * x.window[2] * depth(x) * lanes;
  }
  static TW_INLINE int64_t slot_floats(const tw_conv_args &x) {
    int64_t largest = 0;
    for (int64_t index = 0; index < classes<way>(x); ++index) {
      G g = gather_of<way>(x, index);
      if (g.positions == 0) continue;
      Strip s = strip_of<way>(x, g, width);
      int64_t floats = Strips::floats(s, g, Strips::together(s, g, vectors(x)));
      floats += g.axis[2].taps * s.depth * 2;                                      // offsets
      floats += g.axis[0].taps * g.axis[1].taps * int64_t(sizeof(WindowRow) / 4);  // rows
      largest = most(largest, floats);
    }
    return up(largest + width * lanes, 16);
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    return (up(weight_floats(x), 16) + slot_floats(x) * useful(x, threads)) * 4 + 64;
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double work = double(x.batch) * double(x.out[0] * x.out[1] * x.out[2]) * double(vectors(x)) *
                  double(depth(x) * x.window[0] * x.window[1] * x.window[2]);
    double most_threads = work / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- weights --------------------------------------------------------------------------------
  // Of one vector: row of the window, tap of the width, channel, lane.
  static void pack(const tw_conv_args &x, const G &g, const Strip &s, int64_t vector, float *out) {
    const In *w = static_cast<const In *>(x.w);
    const Axis &d = g.axis[0], &h = g.axis[1], &a = g.axis[2];
    int64_t first = vector * lanes, count = least(lanes, s.columns - first);
    bool dense = x.w_strides[3] == x.channels && x.w_strides[2] == x.window[2] * x.w_strides[3] &&
                 x.w_strides[1] == x.window[1] * x.w_strides[2];
    bool turned = way == ConvVariant::forward || (x.filters == 1 && x.channels == 1);
    if constexpr (!is_int<In>)
      if (dense && turned && d.tap_step == 1 && h.tap_step == 1 && a.tap_step == 1) {
        pack_b<DotFloat<In, In>, false, 1>(w + first * x.w_strides[0], x.w_strides[0], count, g.taps * s.depth,
                                           reinterpret_cast<uint32_t *>(out), nullptr);
        return;
      }
    for (int64_t t = 0; t < g.taps; ++t) {
      int64_t td = t / a.taps / h.taps, th = t / a.taps % h.taps, tw = t % a.taps;
      const In *tap = w + (d.tap + td * d.tap_step) * x.w_strides[1] + (h.tap + th * h.tap_step) * x.w_strides[2] +
                      (a.tap + tw * a.tap_step) * x.w_strides[3];
      for (int64_t c = 0; c < s.depth; ++c, out += lanes)
        for (int l = 0; l < lanes; ++l) {
          int64_t j = first + l, filter = j, channel = c;
          if (way != ConvVariant::forward) {
            filter = j / s.group_columns * s.depth + c;
            channel = j % s.group_columns;
          }
          out[l] = l < count ? to_float(tap[filter * x.w_strides[0] + channel]) : 0.0f;
        }
    }
  }

  // ---- a band of result lines, some vectors ---------------------------------------------------
  struct Task {
    const tw_conv_args *x;
    G g;
    Strip s;
    const float *weights;  // of this class
    bool far;
  };
  static void band(const Task &t, int64_t first, int64_t count, Place p, int64_t end, float *slot) {
    const tw_conv_args &x = *t.x;
    const Axis &w = t.g.axis[2];
    float *scratch = slot;
    slot += width * lanes;
    Strips rings{&t.s, &t.g, nullptr, Gathered<way>::strides(x), nullptr, nullptr, 0, 0};
    rings.image = static_cast<const In *>(Gathered<way>::data(x)) + p.image * rings.strides[0];
    rings.place(slot, first, count);
    slot += Strips::floats(t.s, t.g, count);
    auto *offsets = reinterpret_cast<int64_t *>(slot);
    int64_t inner = w.taps * t.s.depth, each = t.g.taps * t.s.depth * lanes;
    auto *rows = reinterpret_cast<WindowRow *>(offsets + inner);
    line_offsets(t.s, w, offsets);
    bool sliding = t.s.depth == 1 && w.step == 1 && (w.offset_step == 1 || w.offset_step == -1);
    rings.start(p.at[1]);
    for (; p.at[1] < end; ++p.at[1]) {
      if (t.g.taps > 0) rings.fill(p.at[0], p.at[1]);
      int64_t number = t.g.taps > 0 ? window_rows(rings, p.at[0], p.at[1], rows) : 0;
      for (int64_t v = 0; v < count; ++v) {
        const float *strip = rings.base(v), *weights = t.weights + (first + v) * each;
        for (int64_t j = 0; j < w.count;) {
          int64_t left = w.count - j, live = least(left, left <= half ? half : width);
          p.at[2] = j;
          auto run = [&](float *out, int64_t ld) {
            if (left <= half) any<half>(sliding, strip, rows, number, offsets, inner, weights, j * lanes, out, ld);
            else any<width>(sliding, strip, rows, number, offsets, inner, weights, j * lanes, out, ld);
          };
          finish(t, first + v, p, live, left <= half ? half : width, scratch, run);
          j += live;
        }
      }
    }
  }
  template <int Width> static TW_INLINE void any(bool sliding, const float *strip, const WindowRow *rows,
                                                 int64_t number, const int64_t *offsets, int64_t inner,
                                                 const float *weights, int64_t at, float *out, int64_t ld) {
    constexpr int registers = lanes == 16 ? 32 : 16;
    if (Width + 4 <= registers && sliding && inner == 3)
      return sliding_block<Width, 3>(strip, rows, number, offsets, weights, at, out, ld);
    if (Width + 6 <= registers && sliding && inner == 5)
      return sliding_block<Width, 5>(strip, rows, number, offsets, weights, at, out, ld);
    if (Width + 8 <= registers && sliding && inner == 7)
      return sliding_block<Width, 7>(strip, rows, number, offsets, weights, at, out, ld);
    lane_block<Width>(strip, rows, number, offsets, inner, weights, at, out, ld);
  }
  template <class Run> static TW_INLINE void finish(const Task &t, int64_t vector, Place p, int64_t live, int64_t whole,
                                                    float *scratch, const Run &run) {
    const tw_conv_args &x = *t.x;
    int64_t column = vector * lanes, columns = least(lanes, t.s.columns - column);
    if constexpr (End::plain && !is_int<In>)
      if (live == whole && columns == lanes) {
        float *to = End::base(x) + End::offset(t.g, p, End::strides(x)) + column;
        int64_t apart = End::strides(x)[3] * t.g.axis[2].place_step;
        if (!t.far) return run(to, apart);
        run(scratch, lanes);
        for (int64_t i = 0; i < live; ++i) End::put(to + i * apart, load_f(scratch + i * lanes), true);
        return;
      }
    run(scratch, lanes);
    for (int64_t i = 0; i < live; ++i, ++p.at[2]) {
      if constexpr (is_int<In>)
        store_u(scratch + i * lanes, vu(__builtin_convertvector(load_f(scratch + i * lanes), vi)));
      End::store(End::row(x, t.g, p, column), reinterpret_cast<const Sum *>(scratch + i * lanes), columns);
    }
    (void)whole;
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream)), slot = slot_floats(x), count = vectors(x);
    float *slots = base + up(weight_floats(x), 16);
    parallel(stream, threads, [&](int64_t worker) {
      float *at = base;
      int64_t item = 0;
      for (int64_t index = 0; index < classes<way>(x); ++index) {
        G g = gather_of<way>(x, index);
        Strip s = strip_of<way>(x, g, width);
        for (int64_t v = 0; v < count; ++v, at += g.taps * s.depth * lanes)
          if (item++ % threads == worker) pack(x, g, s, v, at);
      }
    });
    parallel(stream, threads, [&](int64_t worker) {
      const float *at = base;
      int64_t item = 0;
      for (int64_t index = 0; index < classes<way>(x); ++index) {
        Task t{&x, gather_of<way>(x, index), {}, at, End::far(x)};
        t.s = strip_of<way>(x, t.g, width);
        at += count * t.g.taps * t.s.depth * lanes;
        if (t.g.positions == 0) continue;
        int64_t lines = t.g.axis[1].count, slices = x.batch * t.g.axis[0].count;
        int64_t some = Strips::together(t.s, t.g, count), chunks = (count + some - 1) / some;
        int64_t bands = least(lines, most(1, (2 * threads + slices * chunks - 1) / (slices * chunks)));
        if (threads == 1) bands = 1;
        for (int64_t one = 0; one < slices * chunks * bands; ++one) {
          if (item++ % threads != worker) continue;
          int64_t b = one % bands, v = one / bands % chunks * some, slice = one / bands / chunks;
          Place p{slice / t.g.axis[0].count, {slice % t.g.axis[0].count, b * lines / bands, 0}};
          band(t, v, least(some, count - v), p, (b + 1) * lines / bands, slots + worker * slot);
        }
      }
      streamed();
    });
    return TW_OK;
  }
};

}  // namespace tw
