// Backward-weight with vectors along the filters, for depthwise convolutions and small groups; see conv_strip.h.
//
// The strip is the forward one: lane l holds what filter l reads.  A register block is a handful of taps and channels
// whose accumulators stay in registers while the pixels of a line go by.  Depthwise, with windows of usual width, both
// operands are read where they lie (in_place.h).
#pragma once
#include <tilewright/cpu/conv/lanes_wgrad/in_place.h>
#include <tilewright/cpu/conv/strip.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

// kept[t] += gradient * strip for the pixels of one line; `at[t]` is where tap t begins in the strip.
template <int Taps>
__attribute__((noinline)) void lane_taps(const float *const *at, const float *gradient, int64_t pixels, float *kept) {
  vf accum[Taps];
  const float *from[Taps];
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) {
    accum[t] = load_f(kept + t * lanes);
    from[t] = at[t];
  }
  for (int64_t p = 0; p < pixels * lanes; p += lanes) {
    vf y = load_f(gradient + p);
#pragma GCC unroll 16
    for (int t = 0; t < Taps; ++t) accum[t] = accum[t] + y * load_f(from[t] + p);
  }
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) store_f(kept + t * lanes, accum[t]);
}

template <class Config> struct ConvLanesWgrad {
  using In = typename Config::A;
  using Out = typename Config::C;
  using Strips = Rings<In>;
  static constexpr ConvVariant gathering = ConvVariant::forward;
  static constexpr int taps_at_once = Config::warp_tile_m;
  static constexpr int64_t enough = 16;  // splits of the work: fewer vectors are split along the lines
  static constexpr int64_t smallest_share = selection::kSmallestVectorShare;

  // ---- sizes -------------------------------------------------------------------------------
  static TW_INLINE int64_t vectors(const tw_conv_args &x) { return (x.groups * x.filters + lanes - 1) / lanes; }
  static TW_INLINE int64_t entries(const tw_conv_args &x) {
    return x.window[0] * x.window[1] * x.window[2] * x.channels;
  }
  static TW_INLINE int64_t slices(const tw_conv_args &x) { return x.batch * x.out[0]; }
  // How many splits the accumulators of a vector have: a matter of the problem alone, so that results are always the same.
  static TW_INLINE int64_t bands(const tw_conv_args &x) {
    int64_t count = vectors(x), work = entries(x) * slices(x) * x.out[1] * x.out[2];
    int64_t chunks = in_place(x) ? (count + vectors_at_once - 1) / vectors_at_once : count;
    if (chunks >= enough || count * work < 4 * smallest_share) return 1;
    return least(slices(x) * x.out[1], (enough + chunks - 1) / chunks);
  }
  static TW_INLINE int64_t part_floats(const tw_conv_args &x) { return vectors(x) * entries(x) * lanes; }
  static TW_INLINE int64_t slot_floats(const tw_conv_args &x) {
    Gather g = gather_of<gathering>(x, 0);
    Strip s = strip_of<gathering>(x, g, 0);
    int64_t floats = Strips::floats(s, g, Strips::together(s, g, vectors(x))) + x.out[2] * lanes;  // strips, gradient
    floats += (g.axis[2].taps * s.depth + taps_at_once) * 2;                                       // offsets, pointers
    return up(floats + g.axis[0].taps * g.axis[1].taps * int64_t(sizeof(WindowRow) / 4), 16);
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    return (up(bands(x) * part_floats(x), 16) + slot_floats(x) * useful(x, threads)) * 4 + 64;
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double work = double(vectors(x)) * double(entries(x)) * double(slices(x) * x.out[1] * x.out[2]);
    double most_threads = work / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- some vectors, a range of result lines --------------------------------------------------
  struct Room {
    float *gradient;
    int64_t *offsets;
    const float **at;
    WindowRow *rows;
  };
  // `kept`: the accumulators of the vectors, one after the other.
  static void band(const tw_conv_args &x, const Gather &g, const Strip &s, int64_t vector, int64_t number,
                   int64_t first, int64_t last, float *kept, float *slot) {
    Strips rings{&s, &g, nullptr, x.x_strides, nullptr, nullptr, 0, 0};
    rings.place(slot, vector, number);
    slot += Strips::floats(s, g, number);
    int64_t inner = g.axis[2].taps * s.depth, heights = g.axis[1].count, each = entries(x) * lanes, before = -1;
    Room room{slot, reinterpret_cast<int64_t *>(slot + x.out[2] * lanes), nullptr, nullptr};
    room.at = reinterpret_cast<const float **>(room.offsets + inner);
    room.rows = reinterpret_cast<WindowRow *>(room.at + taps_at_once);
    line_offsets(s, g.axis[2], room.offsets);
    __builtin_memset(kept, 0, size_t(each * number) * 4);
    for (int64_t index = first; index < last; ++index) {
      int64_t h = index % heights, slice = index / heights, depth = slice % x.out[0], image = slice / x.out[0];
      if (slice != before) {
        rings.image = static_cast<const In *>(x.x) + image * x.x_strides[0];
        rings.start(h);
        before = slice;
      }
      rings.fill(depth, h);
      int64_t rows = window_rows(rings, depth, h, room.rows);
      const In *y = static_cast<const In *>(x.y) + image * x.y_strides[0] + depth * x.y_strides[1] + h * x.y_strides[2];
      for (int64_t v = 0; v < number; ++v) {
        int64_t column = (vector + v) * lanes;
        widen(y + column, x.y_strides[3], x.out[2], least(lanes, s.columns - column), room.gradient);
        line(rings.base(v), room, rows, inner, x.out[2], kept + v * each);
      }
    }
  }
  static TW_INLINE void widen(const In *y, int64_t step, int64_t pixels, int64_t count, float *to) {
    if (count == lanes)
      for (int64_t p = 0; p < pixels; ++p, y += step, to += lanes) store_f(to, load_as_float(y));
    else
      for (int64_t p = 0; p < pixels; ++p, y += step, to += lanes) store_f(to, load_as_float(y, count));
  }
  static TW_INLINE void line(const float *strip, const Room &room, int64_t rows, int64_t inner, int64_t pixels,
                             float *kept) {
    int64_t total = rows * inner;
    for (int64_t t = 0; t < total;) {
      // Entries that follow each other, also in `kept`: rows may be missing, at the border.
      int64_t row = room.rows[t / inner].row, begin = row * inner + t % inner, count = 0;
      for (; count < taps_at_once && t + count < total; ++count) {
        const WindowRow &r = room.rows[(t + count) / inner];
        int64_t entry = (t + count) % inner;
        if (r.row * inner + entry != begin + count) break;
        room.at[count] = strip + r.line + room.offsets[entry];
      }
      with_fixed<taps_at_once>(
          count, [&](auto n) { lane_taps<decltype(n)::value>(room.at, room.gradient, pixels, kept + begin * lanes); });
      t += count;
    }
  }

  // ---- the same, read where they lie ----------------------------------------------------------
  static constexpr int registers = lanes == 16 ? 32 : 16;
  static constexpr int64_t vectors_at_once = 4, floats_at_once = 64 << 10;  // what a second-level cache holds
  // Results of a line that has at least the window's width: else hardly any sees all taps.
  static TW_INLINE bool in_place(const tw_conv_args &x) {
    if (is_int<In> || x.channels != 1 || x.filters != 1 || x.groups < lanes || x.dilation[2] != 1) return false;
    const int64_t taps = x.window[2], after = (x.out[2] - 1) * x.stride[2] + taps - x.before[2] - x.size[2];
    return (taps == 3 || taps == 5 || taps == 7) && x.out[2] >= taps && x.before[2] < taps && after < taps;
  }
  // The first channel of a vector: the last vector is whole and begins earlier.
  static TW_INLINE int64_t column_of(const tw_conv_args &x, int64_t vector, bool whole) {
    return whole ? least(vector * lanes, x.groups * x.filters - lanes) : vector * lanes;
  }
  // Rows of the window that are inside for a line of results.
  struct Inside {
    int64_t begin, end;
    TW_INLINE bool operator==(const Inside &other) const { return begin == other.begin && end == other.end; }
  };
  static TW_INLINE Inside inside(const tw_conv_args &x, int64_t height) {
    const int64_t top = height * x.stride[1] - x.before[1], each = x.dilation[1];
    const int64_t begin = top < 0 ? least(x.window[1], (-top + each - 1) / each) : 0;
    const int64_t end = top < x.size[1] ? least(x.window[1], (x.size[1] - top + each - 1) / each) : 0;
    return {begin, most(begin, end)};
  }
  static void lines_band(const tw_conv_args &x, int64_t vector, int64_t number, int64_t first, int64_t last,
                         float *kept) {
    const int64_t heights = x.out[1], each = entries(x) * lanes;
    const int64_t line = (x.size[2] + x.out[2]) * number * lanes, some = most(4, floats_at_once / line);
    __builtin_memset(kept, 0, size_t(each * number) * 4);
    for (int64_t index = first; index < last;) {
      const int64_t h = index % heights, slice = index / heights, depth = slice % x.out[0], image = slice / x.out[0];
      const Inside rows = inside(x, h), all = {h, least(heights, h + least(some, last - index))};
      WholeLines<In> o{};
      for (o.lines = 1; h + o.lines < all.end && inside(x, h + o.lines) == rows;) ++o.lines;
      o.x_row = x.dilation[1] * x.x_strides[2];
      o.x_line = x.stride[1] * x.x_strides[2];
      o.y_line = x.y_strides[2];
      o.x_pixel = x.x_strides[3];
      o.y_pixel = x.y_strides[3];
      o.size = x.size[2];
      o.out = x.out[2];
      o.before = x.before[2];
      o.step = x.stride[2];
      const In *y = static_cast<const In *>(x.y) + image * x.y_strides[0] + depth * x.y_strides[1] + h * o.y_line;
      for (int64_t td = 0; td < x.window[0]; ++td) {
        const int64_t z = depth * x.stride[0] - x.before[0] + td * x.dilation[0];
        if (z < 0 || z >= x.size[0]) continue;
        const In *from = static_cast<const In *>(x.x) + image * x.x_strides[0] + z * x.x_strides[1] +
                         (h * x.stride[1] - x.before[1]) * x.x_strides[2];
        for (int64_t v = 0; v < number; ++v) {
          const int64_t column = column_of(x, vector + v, true);
          o.x = from + column;
          o.y = y + column;
          o.kept = kept + v * each + td * x.window[1] * x.window[2] * lanes;
          rows_of_window(x, o, rows);
        }
      }
      index += o.lines;
    }
  }
  // Some rows of the window at a time, as many as registers hold.
  static TW_INLINE void rows_of_window(const tw_conv_args &x, const WholeLines<In> &lines_seen, const Inside &rows) {
    auto run = [&](auto taps) {
      constexpr int Taps = decltype(taps)::value, fitting = (registers - Taps - 1) / Taps;
      constexpr int most_rows = fitting > 3 ? 3 : fitting;
      for (int64_t r = rows.begin; r < rows.end; r += most_rows) {
        WholeLines<In> o = lines_seen;
        o.x += r * o.x_row;
        o.kept += r * Taps * lanes;
        with_fixed<most_rows>(least(most_rows, rows.end - r), [&](auto count) {
          constexpr int Rows = decltype(count)::value;
          if (o.step == 1) whole_lines<In, Rows, Taps, true>(o);
          else whole_lines<In, Rows, Taps, false>(o);
        });
      }
    };
    if (x.window[2] == 3) run(fixed<3>{});
    else if (x.window[2] == 5) run(fixed<5>{});
    else run(fixed<7>{});
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream)), slot = slot_floats(x), count = vectors(x), parts = bands(x);
    int64_t part = part_floats(x), each = entries(x) * lanes, lines = slices(x) * x.out[1];
    float *slots = base + up(parts * part, 16);
    Gather g = gather_of<gathering>(x, 0);
    Strip s = strip_of<gathering>(x, g, 0);
    const bool whole = in_place(x);
    int64_t some = whole ? vectors_at_once : Strips::together(s, g, count);
    int64_t chunks = (count + some - 1) / some;
    share_out(stream, threads, chunks * parts, [&](int64_t worker, int64_t item) {
      int64_t b = item % parts, v = item / parts * some, number = least(some, count - v);
      int64_t first = b * lines / parts, last = (b + 1) * lines / parts;
      float *kept = base + b * part + v * each;
      if constexpr (!is_int<In>) {
        if (whole) lines_band(x, v, number, first, last, kept);
      }
      if (!whole) band(x, g, s, v, number, first, last, kept, slots + worker * slot);
      if (parts == 1)
        for (int64_t vector = v; vector < v + number; ++vector) write(x, vector, base + vector * each, 1, part);
    });
    if (parts > 1)
      share_out(stream, threads, count, [&](int64_t, int64_t v) { write(x, v, base + v * each, parts, part); });
    return TW_OK;
  }
  // The splits of one vector added in order, and its lanes to their filters.
  static void write(const tw_conv_args &x, int64_t vector, float *accum, int64_t parts, int64_t part) {
    int64_t first = column_of(x, vector, in_place(x)), count = least(lanes, x.groups * x.filters - first);
    const int64_t done = vector * lanes - first;  // lanes that the vector before has
    for (int64_t e = 0; e < entries(x); ++e) {
      vf sum = load_f(accum + e * lanes);
      for (int64_t b = 1; b < parts; ++b) sum += load_f(accum + b * part + e * lanes);
      store_f(accum + e * lanes, sum);
    }
    int64_t taps = x.window[0] * x.window[1] * x.window[2];
    for (int64_t l = done; l < count; ++l) {
      Out *filter = static_cast<Out *>(x.w) + (first + l) * x.w_strides[0];
      for (int64_t t = 0; t < taps; ++t) {
        Out *to = filter + t % x.window[2] * x.w_strides[3] + t / x.window[2] % x.window[1] * x.w_strides[2] +
                  t / x.window[2] / x.window[1] * x.w_strides[1];
        for (int64_t c = 0; c < x.channels; ++c) from_float(accum[(t * x.channels + c) * lanes + l], to + c);
      }
    }
  }
};

}  // namespace tw
