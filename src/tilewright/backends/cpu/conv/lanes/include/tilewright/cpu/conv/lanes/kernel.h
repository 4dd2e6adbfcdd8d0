// Vectors along the channels of the result, for depthwise convolutions and small groups.
//
// A register block is a run of result pixels of one line and one vector of channels: for each tap, one vector of
// weights times as many vectors of pixels.  These are read where they lie if every channel has one filter, the window
// moves by a pixel or two and most of a line's results are inside; else they lie side by side in a strip (conv_strip.h).
#pragma once
#include <tilewright/cpu/conv/strip.h>
#include <tilewright/cpu/conv/words.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

template <class Config> struct ConvLanes {
  using In = typename Config::A;
  using End = ConvFinish<Config>;
  using Sum = typename End::Sum;
  static constexpr ConvVariant way = Config::variant;
  static constexpr int width = Config::warp_tile_m, half = width / 2 < 1 ? 1 : width / 2;
  static constexpr int registers = lanes == 16 ? 32 : 16;
  static constexpr int some = 4;  // vectors of channels of a pixel near the border
  static constexpr int scratch_vectors = (width > some ? width : some) + 1;
  static constexpr int lines_at_once = 4;  // whose windows overlap, so that a first-level cache has them
  static constexpr int64_t smallest_share = selection::kSmallestVectorShare;
  using G = Gather;
  using Strips = Rings<In>;

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
      floats += g.axis[2].taps * s.depth * 2;                                                      // offsets
      floats += lines_at_once * g.axis[0].taps * g.axis[1].taps * int64_t(sizeof(WindowRow) / 4);  // rows
      largest = most(largest, floats);
    }
    return up(largest + scratch_vectors * lanes, 16);
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    return (up(weight_floats(x), 16) + slot_floats(x) * useful(x, threads)) * 4 + 64;
  }
  static TW_INLINE double work_of(const tw_conv_args &x) {
    return double(x.batch) * double(x.out[0] * x.out[1] * x.out[2]) * double(vectors(x)) *
           double(depth(x) * x.window[0] * x.window[1] * x.window[2]);
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double most_threads = work_of(x) / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- lines that are read where they lie -----------------------------------------------------
  // Results of a line all of whose taps are inside.
  struct Inside {
    int64_t first, last;
  };
  static TW_INLINE Inside inside(const Axis &w) {
    int64_t reach = (w.taps - 1) * w.offset_step, low = w.offset + least(0, reach), high = w.offset + most(0, reach);
    Inside in{low < 0 ? least(w.count, (-low + w.step - 1) / w.step) : 0, 0};
    if (high < w.size) in.last = least(w.count, (w.size - 1 - high) / w.step + 1);
    in.last = most(in.first, in.last);
    return in;
  }
  // body(taps, step) as constants, where there is a block for taps that are neighbours; else false.
  template <class Body> static TW_INLINE bool neighbours(const Axis &w, const Body &body) {
    if (w.offset_step != 1 && w.offset_step != -1) return false;
    if (w.step == 2 && way == ConvVariant::forward) {
      if (w.taps == 3) return body(fixed<3>{}, fixed<2>{}), true;
      if (w.taps == 5) return body(fixed<5>{}, fixed<2>{}), true;
      if (w.taps == 7) return body(fixed<7>{}, fixed<2>{}), true;
    }
    if (w.step != 1) return false;
    if constexpr (way != ConvVariant::forward) {  // of classes of residues
      if (w.taps == 1) return body(fixed<1>{}, fixed<1>{}), true;
      if (w.taps == 2) return body(fixed<2>{}, fixed<1>{}), true;
      if (w.taps == 4) return body(fixed<4>{}, fixed<1>{}), true;
    }
    if (w.taps == 3) return body(fixed<3>{}, fixed<1>{}), true;
    if (w.taps == 5) return body(fixed<5>{}, fixed<1>{}), true;
    if (w.taps == 7) return body(fixed<7>{}, fixed<1>{}), true;
    return false;
  }
  // Long rows of taps that move by one pixel are faster in a strip, where all results of a line share what was loaded;
  // and so are pixels that share the few sets of a first-level cache.  Results that leave every cache gain nothing.
  static TW_INLINE bool in_place(const tw_conv_args &x, const G &g, const Strip &s) {
    if constexpr (is_int<In>) return false;
    const Axis &w = g.axis[2];
    if (s.depth != 1 || s.group_columns != 1 || s.columns < lanes || g.taps == 0) return false;
    if (w.step == 1 && (w.taps > 4 || (w.place_step == 1 && End::far(x)))) return false;
    Inside in = inside(w);
    if (in.last - in.first < most(half, w.count / 2)) return false;
    if (cache_lines(Gathered<way>::strides(x)[3] * int64_t(sizeof(In))) < 2 * (width * w.step + w.taps)) return false;
    return neighbours(w, [](auto, auto) {});
  }
  // The first channel of a vector: where lines are read as they lie, the last vector is whole and begins earlier.
  static TW_INLINE int64_t column_of(const Strip &s, int64_t vector, bool whole) {
    return whole ? least(vector * lanes, s.columns - lanes) : vector * lanes;
  }

  // ---- weights --------------------------------------------------------------------------------
  // Of the vector from channel `first` on: row of the window, tap of the width, channel, lane.
  static void pack(const tw_conv_args &x, const G &g, const Strip &s, int64_t first, float *out) {
    const In *w = static_cast<const In *>(x.w);
    const Axis &d = g.axis[0], &h = g.axis[1], &a = g.axis[2];
    int64_t count = least(lanes, s.columns - first);
    bool dense = x.w_strides[3] == x.channels && x.w_strides[2] == x.window[2] * x.w_strides[3] &&
                 x.w_strides[1] == x.window[1] * x.w_strides[2];
    bool transposed = way == ConvVariant::forward || (x.filters == 1 && x.channels == 1);
    if constexpr (!is_int<In>)
      if (dense && transposed && d.tap_step == 1 && h.tap_step == 1 && a.tap_step == 1) {
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
    slot += scratch_vectors * lanes;
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
            const float *at = strip + j * lanes;
            if (left <= half) any<half>(sliding, at, rows, number, offsets, inner, weights, out, ld);
            else any<width>(sliding, at, rows, number, offsets, inner, weights, out, ld);
          };
          finish(t, first + v, p, live, left <= half ? half : width, scratch, run);
          j += live;
        }
      }
    }
  }
  template <int Width> static TW_INLINE void any(bool sliding, const float *at, const WindowRow *rows, int64_t number,
                                                 const int64_t *offsets, int64_t inner, const float *weights,
                                                 float *out, int64_t ld) {
    bool backwards = sliding && offsets[inner - 1] < offsets[0];
    const float *first = at + (backwards ? offsets[inner - 1] : offsets[0]);
    if (Width + 4 <= registers && sliding && inner == 3)
      return sliding_block<float, Width, 3, 1>(first, lanes, rows, number, backwards, weights, out, ld);
    if (Width + 6 <= registers && sliding && inner == 5)
      return sliding_block<float, Width, 5, 1>(first, lanes, rows, number, backwards, weights, out, ld);
    if (Width + 8 <= registers && sliding && inner == 7)
      return sliding_block<float, Width, 7, 1>(first, lanes, rows, number, backwards, weights, out, ld);
    lane_block<Width>(at, rows, number, offsets, inner, weights, out, ld);
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

  // ---- some result lines and vectors, read where they lie -------------------------------------
  struct Lines {
    const Task *t;
    const In *image;  // of the operand
    int64_t pitch;    // elements from a pixel to the next
    const WindowRow *rows;
    int64_t count, number[lines_at_once];  // of lines; rows of the window each of them has
    int64_t v0, v1;
    float *scratch;
    TW_INLINE const WindowRow *rows_of(int64_t line) const {
      return rows + line * t->g.axis[0].taps * t->g.axis[1].taps;
    }
  };
  // `count` lines from `place` on.  A run of pixels is done for all of them before the next: they read the same lines.
  static void lines(const Task &t, const Place &place, int64_t count, int64_t v0, int64_t v1, float *slot) {
    const Axis &w = t.g.axis[2];
    const int64_t *strides = Gathered<way>::strides(*t.x);
    auto *rows = reinterpret_cast<WindowRow *>(slot + scratch_vectors * lanes);
    Lines l{&t,         static_cast<const In *>(Gathered<way>::data(*t.x)) + place.image * strides[0],
            strides[3], rows,
            count,      {},
            v0,         v1,
            slot};
    for (int64_t i = 0; i < count; ++i)
      l.number[i] = window_rows(t.g, place.at[0], place.at[1] + i, rows + (l.rows_of(i) - l.rows),
                                [&](int64_t, int64_t d, int64_t h) { return d * strides[1] + h * strides[2]; });
    Inside in = inside(w);
    Place p = place;
    for (p.at[2] = 0; p.at[2] < in.first; ++p.at[2]) edges(l, p);
    neighbours(w, [&](auto taps, auto step) {
      constexpr int Taps = decltype(taps)::value, Step = decltype(step)::value;
      constexpr int wide = width + Taps + 1 <= registers ? width : half;
      for (p.at[2] = in.first; p.at[2] < in.last;) {
        int64_t left = in.last - p.at[2];
        if (left > half && wide > half && in.last - in.first >= wide) run<wide, Taps, Step>(l, p, in.last);
        else run<half, Taps, Step>(l, p, in.last);
      }
    });
    for (; p.at[2] < w.count; ++p.at[2]) edges(l, p);
  }
  // A run of `Width` results from p on, of which the last is before `last`: what is left of a line begins earlier.
  template <int Width, int Taps, int Step> static TW_INLINE void run(const Lines &l, Place &p, int64_t last) {
    const Task &t = *l.t;
    const Axis &w = t.g.axis[2];
    int64_t from = least(p.at[2], last - Width), done = p.at[2] - from;
    bool backwards = w.offset_step < 0;
    const In *first = l.image + (from * Step + w.offset - (backwards ? Taps - 1 : 0)) * l.pitch;
    p.at[2] = from;
    Place at = p;
    for (int64_t v = l.v0; v < l.v1; ++v)
      for (int64_t i = 0; i < l.count; ++i) {
        at.at[1] = p.at[1] + i;
        int64_t column = column_of(t.s, v, true);
        const float *weights = t.weights + v * t.g.taps * lanes;
        auto block = [&](float *out, int64_t ld) {
          sliding_block<In, Width, Taps, Step>(first + column, l.pitch, l.rows_of(i), l.number[i], backwards, weights,
                                               out, ld);
        };
        if constexpr (End::plain)
          if (!t.far && column == v * lanes) {
            block(End::base(*t.x) + End::offset(t.g, at, End::strides(*t.x)) + column,
                  End::strides(*t.x)[3] * w.place_step);
            continue;
          }
        block(l.scratch, lanes);
        leave(t, at, v, done, Width, l.scratch);
      }
    p.at[2] = from + Width;
  }
  // One result of each line, some of whose taps are outside.
  static TW_INLINE void edges(const Lines &l, const Place &p) {
    const Task &t = *l.t;
    const Axis &w = t.g.axis[2];
    int64_t z = p.at[2] * w.step + w.offset, forth = w.offset_step, each = t.g.taps * lanes;
    int64_t begin = forth > 0 ? most(0, -z) : most(0, z - (w.size - 1));
    int64_t end = most(begin, least(w.taps, forth > 0 ? w.size - z : z + 1));
    const In *first = l.image + (z + begin * forth) * l.pitch;
    Place at = p;
    for (int64_t v = l.v0; v < l.v1;) {
      const float *weights = t.weights + v * each;
      int64_t column = column_of(t.s, v, true);
      bool whole = v + some <= l.v1 && (v + some) * lanes <= t.s.columns;
      for (int64_t i = 0; i < l.count; ++i) {
        at.at[1] = p.at[1] + i;
        auto block = whole ? border_block<In, some> : border_block<In, 1>;
        block(first + column, forth * l.pitch, l.rows_of(i), l.number[i], begin, end, w.taps, weights, each, l.scratch);
        for (int64_t j = 0; j < (whole ? some : 1); ++j) leave(t, at, v + j, 0, 1, l.scratch + j * lanes);
      }
      v += whole ? some : 1;
    }
  }
  // Accumulators in scratch, one vector a pixel from p on: pixels [done, count) of the lanes no vector before had.
  static TW_INLINE void leave(const Task &t, Place p, int64_t v, int64_t done, int64_t count, const float *scratch) {
    const tw_conv_args &x = *t.x;
    const G &g = t.g;
    int64_t skip = v * lanes - column_of(t.s, v, true), apart = End::strides(x)[3] * g.axis[2].place_step;
    const float *accum = scratch + done * lanes + skip;
    p.at[2] += done;
    auto row = End::row(x, g, p, v * lanes);
    for (int64_t i = done; i < count; ++i, accum += lanes) {
      End::store(row, accum, lanes - skip);
      row.to += apart;
      for (int d = 0; d < Config::num_d; ++d) row.d[d] += x.d_strides[d][3] * g.axis[2].place_step;
    }
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream)), slot = slot_floats(x), count = vectors(x);
    float *slots = base + up(weight_floats(x), 16);
    const int64_t parts = shares(work_of(x), double(smallest_share), threads);
    share_out(stream, threads, parts, [&](int64_t, int64_t part) {
      float *at = base;
      int64_t item = 0;
      for (int64_t index = 0; index < classes<way>(x); ++index) {
        G g = gather_of<way>(x, index);
        Strip s = strip_of<way>(x, g, width);
        bool whole = in_place(x, g, s);
        for (int64_t v = 0; v < count; ++v, at += g.taps * s.depth * lanes)
          if (item++ % parts == part) pack(x, g, s, column_of(s, v, whole), at);
      }
    });
    share_out(stream, threads, parts, [&](int64_t worker, int64_t part) {
      const float *at = base;
      for (int64_t index = 0; index < classes<way>(x); ++index) {
        Task t{&x, gather_of<way>(x, index), {}, at, End::far(x)};
        t.s = strip_of<way>(x, t.g, width);
        at += count * t.g.taps * t.s.depth * lanes;
        if (t.g.positions == 0) continue;
        if constexpr (!is_int<In>)
          if (in_place(x, t.g, t.s)) {
            lines_share(t, count, part, parts, threads, slots + worker * slot);
            continue;
          }
        bands_share(t, count, part, parts, threads, slots + worker * slot);
      }
      streamed();
    });
    return TW_OK;
  }
  // One share of a class.  Lines, of which few are cut along the channels too.
  static TW_INLINE void lines_share(const Task &t, int64_t count, int64_t share, int64_t shares, int64_t threads,
                                    float *slot) {
    int64_t high = t.g.axis[1].count, depths = t.g.axis[0].count, all = t.x->batch * depths * high;
    int64_t parts = threads == 1 ? 1 : least(count, (8 * threads + all - 1) / all);
    int64_t first = all * parts * share / shares, last = all * parts * (share + 1) / shares;
    for (int64_t part = first / all; part * all < last; ++part)
      for (int64_t i = most(0, first - part * all); i < least(all, last - part * all);) {
        int64_t some = least(least(lines_at_once, high - i % high), least(all, last - part * all) - i);
        Place p{i / high / depths, {i / high % depths, i % high, 0}};
        lines(t, p, some, part * count / parts, (part + 1) * count / parts, slot);
        i += some;
      }
  }
  // Bands of lines by chunks of vectors.
  static TW_INLINE void bands_share(const Task &t, int64_t count, int64_t share, int64_t shares, int64_t threads,
                                    float *slot) {
    int64_t lines = t.g.axis[1].count, slices = t.x->batch * t.g.axis[0].count;
    int64_t each = Strips::together(t.s, t.g, count), chunks = (count + each - 1) / each;
    int64_t bands = least(lines, most(1, (most(2 * threads, shares) + slices * chunks - 1) / (slices * chunks)));
    if (threads == 1) bands = 1;
    const int64_t items = slices * bands * chunks;
    for (int64_t i = items * share / shares; i < items * (share + 1) / shares; ++i) {
      int64_t v = i % chunks * each, b = i / chunks % bands, slice = i / chunks / bands;
      Place p{slice / t.g.axis[0].count, {slice % t.g.axis[0].count, b * lines / bands, 0}};
      band(t, v, least(each, count - v), p, (b + 1) * lines / bands, slot);
    }
  }
};

}  // namespace tw
