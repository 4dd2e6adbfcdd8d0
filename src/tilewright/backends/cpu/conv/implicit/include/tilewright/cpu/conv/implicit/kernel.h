// Implicit GEMM: rows are positions of the result, columns its channels, k runs over taps and channels.
//
// Weights are packed into panels once a call.  The other operand is read where it lies: for each tap a row of a
// register block has a pointer to the channels of the pixel it needs, or to a line of zeros where that is padding.
// There is no matrix of patches.  Where channels are few, one pointer leads to the channels of a whole row of the
// window, which lie side by side; only rows that reach over the border are copied, with zeros.
//
// A tap that is padding for all rows of a register block is left out of it.  Where windows reach far over the borders of
// small images, positions are numbered through the images first: rows of a block then meet the same taps.
//
// The order in which products are summed depends on the tile alone: results are the same on any number of threads.
// Only where padding meets a weight that is not finite, NaN or not depends on the blocks: it may be left out (below).
#pragma once
#include <tilewright/cpu/conv/gathered_block.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

template <class Config> struct ConvImplicit {
  using In = typename Config::A;
  using Out = typename Config::C;
  using D = tw::Dot<In, In>;
  using End = ConvFinish<Config>;
  using Sum = typename End::Sum;
  static constexpr ConvVariant way = Config::variant;
  static constexpr int MR = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr int MC = Config::tile_m, NC = Config::tile_n;
  static constexpr int KC = Config::tile_k / D::step;  // words of k between two stores of the accumulators
  static constexpr int head = D::offset ? NR : 0;
  static constexpr int half = MR / 2 < 1 ? 1 : MR / 2;
  static constexpr int64_t few_channels = 16;  // below: rows of the window are read as one
  static constexpr int64_t smallest_share = selection::kSmallestShare;
  using Packer = TapPacker<D, way, vectors>;
  static_assert(D::step == Config::warp_tile_k, "the spec's warp_tile_k is not what this ISA multiplies at once");
  static_assert(NR % lanes == 0 && MC % MR == 0 && NC % NR == 0, "tiles do not divide");

  // ---- sizes -------------------------------------------------------------------------------
  // Whether the channels of a row of the window lie side by side, and are so few that it pays.
  static TW_INLINE bool joined(const tw_conv_args &x, const Bundle &b) {
    if (way != ConvVariant::forward || D::offset || x.groups != 1) return false;
    if (x.channels >= few_channels || x.dilation[2] != 1 || x.w_strides[3] != x.channels) return false;
    if (b.copied ? b.pixel != b.words : x.x_strides[3] != x.channels) return false;
    return D::step == 1 || x.window[0] * x.window[1] * x.window[2] * b.words <= KC;  // panels in one chunk
  }
  struct Shape {
    Bundle b;
    bool joined;
    int64_t panels;         // of a bundle
    int64_t all_panels;     // of all bundles
    int64_t words;          // side by side in one tap: of a pixel, or of a row of the window
    int64_t line;           // words a line of zeros has
    int64_t copied;         // words of the copy of x, with a line of zeros for each bundle
    int64_t taps;           // of the window, all classes together
    int64_t chunk, chunks;  // words of a tap in one block of k, and how many blocks
    int64_t panel_words;    // of all taps
    bool fresh;             // each panel is used by one tile alone: packed when it is needed, chunk by chunk
  };
  static TW_INLINE Shape shape(const tw_conv_args &x) {
    Shape s{};
    s.b = bundle_of<D, way>(x, NR);
    settle<D, way, In>(x, s.b, MR);
    s.joined = joined(x, s.b);
    s.words = s.joined ? x.window[2] * s.b.words : s.b.words;
    s.line = up((s.b.copied ? 1 : s.b.count) * s.words, 16);
    s.taps = x.window[0] * x.window[1] * (s.joined ? 1 : x.window[2]);
    s.panels = (s.b.columns + NR - 1) / NR;
    s.all_panels = s.b.count * s.panels;
    int64_t wanted = most(1, (s.taps * s.words + KC - 1) / KC);
    s.chunk = least(most(1, s.words), up((s.words + wanted - 1) / wanted, 4));
    s.chunks = most(1, (s.words + s.chunk - 1) / s.chunk);
    s.panel_words = head + s.taps * s.words * NR;
    s.copied = copied_words<way>(x, s.b, s.line);
    s.fresh = !D::offset && x.batch * pixels(way == ConvVariant::forward ? x.out : x.size) <= MC;
    return s;
  }
  static TW_INLINE int64_t slot_words(const Shape &s) {
    int64_t words = MR * NR + int64_t(MC) * s.taps * 2;                     // scratch, pointers
    words += up(int64_t(MC) / MR * (s.taps + 1), 2);                        // taps that are not padding
    if (s.joined) words += int64_t(MC) * s.taps * s.words;                  // rows of windows at the border
    if (s.chunks > 1) words += int64_t(MC) * least(NC, s.all_panels * NR);  // accumulators that wait
    if (s.fresh) words += s.chunk * s.taps * NR;                            // a panel
    return up(words, 16);
  }
  static TW_INLINE int64_t panels_words(const Shape &s) { return s.fresh ? 0 : up(s.all_panels * s.panel_words, 16); }
  static TW_INLINE int64_t shared_words(const Shape &s) { return panels_words(s) + (s.copied ? s.copied : s.line); }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    Shape s = shape(x);
    return (shared_words(s) + slot_words(s) * useful(x, threads)) * 4 + 64;
  }

  // ---- laying threads over the work ---------------------------------------------------------
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double work = double(x.batch) * double(x.out[0] * x.out[1] * x.out[2]) * double(x.groups * x.filters) *
                  double(x.channels * x.window[0] * x.window[1] * x.window[2]);
    double most_threads = work / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }
  struct Grid {
    int64_t m, n;
  };
  static TW_INLINE Grid grid(const Gather &g, const Shape &s, int64_t threads) {
    Grid best{1, 1};
    if (s.fresh && s.all_panels >= threads) return {1, threads};  // nobody packs what another has packed
    double lowest = 0;
    for (int64_t n = 1; n <= threads; ++n) {
      int64_t m = threads / n;
      if (m * n * 2 <= threads) continue;
      double rows = double(up((g.positions + m - 1) / m, half)), columns = double((s.all_panels + n - 1) / n * NR);
      double cost = rows * columns / lanes + rows * 4 + columns;  // tables are made by rows
      if (lowest == 0 || cost < lowest) {
        lowest = cost;
        best = {m, n};
      }
    }
    return best;
  }
  // Each share once more in pieces of whole tiles of positions, which cost nothing: a thread that comes late so leaves
  // the others more to do.
  static TW_INLINE Grid finer(const Gather &g, const Shape &s, Grid cut, int64_t threads) {
    constexpr int64_t most_pieces = 4;
    if (threads > 1 && !s.fresh) cut.m *= most(1, least(most_pieces, g.positions / cut.m / MC));
    return cut;
  }

  // ---- packing --------------------------------------------------------------------------------
  static TW_INLINE int64_t tap_offset(const tw_conv_args &x, const Gather &g, int64_t tap, bool joined) {
    int64_t at = 0;
    for (int axis = TW_CONV_SPATIAL - 1; axis >= 0; --axis) {
      if (joined && axis == 2) continue;
      const Axis &a = g.axis[axis];
      at += (a.tap + tap % a.taps * a.tap_step) * x.w_strides[axis + 1];
      tap /= a.taps;
    }
    return at;
  }
  static TW_INLINE int64_t taps_of(const Gather &g, bool joined) {
    return g.axis[0].taps * g.axis[1].taps * (joined ? 1 : g.axis[2].taps);
  }
  // The panel of `NR` columns from `column` on: all taps of a class, one chunk of the channels.
  static TW_INLINE void pack_chunk(const tw_conv_args &x, const Shape &s, const Gather &g, int64_t panel, int64_t chunk,
                                   uint32_t *out, int32_t *totals) {
    if (s.joined && D::step > 1) return pack_joined(x, s, g, panel, out, totals);
    Bundle b = s.b;
    if (s.joined) b.depth = b.words = s.words;  // a row of the window is as contiguous in a filter as in x
    int64_t from = chunk * s.chunk, count = least(s.chunk, s.words - from), taps = taps_of(g, s.joined);
    for (int64_t tap = 0; tap < taps; ++tap, out += count * NR)
      Packer::template tap<In>(x, b, panel / s.panels, tap_offset(x, g, tap, s.joined), panel % s.panels * NR, from,
                               count, out, totals);
  }
  // Words of x end with their pixel: so do those of a filter.
  static TW_INLINE void pack_joined(const tw_conv_args &x, const Shape &s, const Gather &g, int64_t panel,
                                    uint32_t *out, int32_t *totals) {
    for (int64_t row = 0; row < taps_of(g, true); ++row)
      for (int64_t tap = 0; tap < x.window[2]; ++tap, out += s.b.words * NR)
        Packer::template tap<In>(x, s.b, 0, tap_offset(x, g, row, true) + tap * x.w_strides[3], panel * NR, 0,
                                 s.b.words, out, totals);
  }
  static void pack_panel(const tw_conv_args &x, const Shape &s, const Gather &g, int64_t panel, uint32_t *out) {
    auto *totals = reinterpret_cast<int32_t *>(out);
    if constexpr (D::offset) __builtin_memset(totals, 0, NR * 4);
    for (int64_t chunk = 0; chunk < s.chunks; ++chunk)
      pack_chunk(x, s, g, panel, chunk, out + head + chunk * s.chunk * taps_of(g, s.joined) * NR, totals);
  }

  // ---- positions ------------------------------------------------------------------------------
  // In which order they are numbered: image by image, or each pixel of all images before the next pixel.
  struct Order {
    const Gather *g;
    int64_t images;  // that go by before the next pixel: 1, or all
    TW_INLINE Place place(int64_t position) const {
      Place p = place_of(*g, position / images);
      if (images > 1) p.image = position % images;
      return p;
    }
    TW_INLINE void next(Place &p) const {
      if (images > 1 && ++p.image < images) return;
      if (images > 1) p.image = 0;
      tw::next(*g, p);
    }
  };
  // The part of an axis' taps that some of `span` neighbours meet.
  static TW_INLINE double met(const Axis &a, int64_t span) {
    int64_t sum = 0;
    for (int64_t j = 0; j < a.count; ++j) {
      int64_t last = least(a.count, j + span) - 1, here = 0;
      for (int64_t t = 0; t < a.taps; ++t) {
        int64_t low = j * a.step + a.offset + t * a.offset_step, high = last * a.step + a.offset + t * a.offset_step;
        here += high >= 0 && low < a.size;
      }
      sum += here;
    }
    return double(sum) / double(most(1, a.count * a.taps));
  }
  // A block's rows are pixels of a line and the lines below, or a few pixels of several images.  Results of the latter are
  // stored row by row, which costs as much as some tens of words.
  static TW_INLINE Order order_of(const Gather &g, const Shape &s, int64_t batch) {
    const Axis &h = g.axis[1], &w = g.axis[2];
    if (D::offset || s.joined || batch < 2 || g.taps < 4 || g.taps * s.b.words < 128 || h.count * w.count > 1024)
      return {&g, 1};
    const int64_t few = (MR + batch - 1) / batch;
    const double plain = met(h, (MR + w.count - 2) / w.count + 1), through = met(h, 1 + few / w.count) * met(w, few);
    return {&g, through < 0.9 * plain ? batch : 1};
  }

  // ---- pointers -------------------------------------------------------------------------------
  // For positions [first, first + count): rows[block][tap][MR].  `border` is room for copied rows of windows.
  static TW_INLINE void point(const Gather &g, const Shape &s, const Order &order, const Source &from, int64_t first,
                              int64_t count, const char **rows, uint32_t *border) {
    int64_t taps = taps_of(g, s.joined);
    Place p = order.place(first);
    for (int64_t i = 0; i < count;) {  // on one line or of one pixel, in one block
      int64_t left = order.images > 1 ? order.images - p.image : g.axis[2].count - p.at[2];
      int64_t run = least(least(MR - i % MR, count - i), left);
      point_run(g, s, order.images > 1, from, p, run, rows + i / MR * taps * MR + i % MR, border);
      i += run;
      (order.images > 1 ? p.image : p.at[2]) += run - 1;
      order.next(p);
    }
    for (int64_t i = count; i < up(count, MR); ++i)
      for (int64_t t = 0; t < taps; ++t) rows[(i / MR * taps + t) * MR + i % MR] = from.zeros;
  }
  // Leaves out taps that are padding for all rows of a block; `live`: how many are left, and which.
  static TW_INLINE void leave_out(int64_t taps, const char *zeros, const char **rows, int32_t *live) {
    int32_t kept = 0;
    for (int64_t t = 0; t < taps; ++t) {
      const char **from = rows + t * MR, **to = rows + kept * MR;
      bool padding = !D::offset;  // whose column totals are of all taps
      for (int i = 0; padding && i < MR; ++i) padding = from[i] == zeros;
      if (padding) continue;
      if (to != from) __builtin_memcpy(to, from, MR * sizeof *from);
      live[++kept] = int32_t(t);
    }
    live[0] = kept;
  }
  // `run` pixels of a line, or images of a pixel.
  static TW_INLINE void point_run(const Gather &g, const Shape &s, bool images, const Source &from, const Place &p,
                                  int64_t run, const char **to, uint32_t *&border) {
    const Axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const int64_t step = images ? 0 : w.step, beside = images ? from.image : 0;
    int64_t w0 = p.at[2] * w.step + w.offset, apart = step * from.axis[2] + beside;
    for (int64_t td = 0; td < d.taps; ++td) {
      int64_t zd = p.at[0] * d.step + d.offset + td * d.offset_step;
      for (int64_t th = 0; th < h.taps; ++th) {
        int64_t zh = p.at[1] * h.step + h.offset + th * h.offset_step;
        bool inside = zd >= 0 && zd < d.size && zh >= 0 && zh < h.size;
        const char *line = from.at + p.image * from.image + zd * from.axis[0] + zh * from.axis[1];
        if (s.joined) {
          for (int64_t i = 0; i < run; ++i)
            to[i] = inside ? window_row(s, from, w, line + i * beside, w0 + i * step, border) : from.zeros;
          to += MR;
          continue;
        }
        int64_t zw = w0;
        for (int64_t tw = 0; tw < w.taps; ++tw, to += MR, zw += w.offset_step) {
          const char *at = line + zw * from.axis[2];
          if (inside && zw >= 0 && zw + (run - 1) * step < w.size)
            for (int64_t i = 0; i < run; ++i) to[i] = at + i * apart;
          else
            for (int64_t i = 0, z = zw; i < run; ++i, z += step)
              to[i] = inside && z >= 0 && z < w.size ? at + i * apart : from.zeros;
        }
      }
    }
  }
  // A row of the window from pixel `first` of a line on; one that reaches over the border is copied.
  static TW_INLINE const char *window_row(const Shape &s, const Source &from, const Axis &w, const char *line,
                                          int64_t first, uint32_t *&border) {
    if (first >= 0 && first + w.taps <= w.size) return line + first * from.axis[2];
    int64_t begin = most(0, -first), end = least(w.taps, w.size - first);
    if (begin >= end) return from.zeros;
    uint32_t *copy = border;
    border += s.words;
    __builtin_memset(copy, 0, size_t(s.words) * 4);
    __builtin_memcpy(copy + begin * s.b.words, line + (first + begin) * from.axis[2],
                     size_t((end - begin) * s.b.words) * 4);
    return reinterpret_cast<const char *>(copy);
  }

  // ---- one register block -------------------------------------------------------------------
  struct Block {
    int64_t taps, words, shift;
    const char *const *rows;
    const int32_t *which;
    const uint32_t *panel;
    const int32_t *start;
    const uint32_t *from;  // accumulators so far, or null
    int64_t ld;
  };
  template <int Rows, class To> static TW_INLINE void run(const Block &t, To *out, int64_t columns) {
    if (t.from)
      gathered_block<D, Rows, MR, vectors, true>(t.taps, t.words, t.rows, t.which, t.shift, t.panel, t.start, t.from,
                                                 out, t.ld, columns);
    else
      gathered_block<D, Rows, MR, vectors, false>(t.taps, t.words, t.rows, t.which, t.shift, t.panel, t.start, nullptr,
                                                  out, t.ld, columns);
  }
  template <class To> static TW_INLINE void run(const Block &t, int64_t rows, To *out, int64_t columns = NR) {
    if (half < MR && rows <= half) run<half>(t, out, columns);
    else run<MR>(t, out, columns);
  }

  // ---- a rectangle of the result -------------------------------------------------------------
  struct Task {
    const tw_conv_args *x;
    const Shape *s;
    Gather g;
    Source from;
    const uint32_t *panels;  // of this class
    int64_t panel_words;
    int64_t images;  // of the order of positions
    bool flat;       // result positions lie evenly apart
    int64_t pitch;
    bool far;
  };
  static void rectangle(const Task &t, int64_t p0, int64_t p1, int64_t n0, int64_t n1, uint32_t *slot) {
    const Shape &s = *t.s;
    uint32_t *scratch = slot;
    slot += MR * NR;
    auto **rows = reinterpret_cast<const char **>(slot);
    slot += int64_t(MC) * s.taps * 2;
    auto *live = reinterpret_cast<int32_t *>(slot);
    slot += up(int64_t(MC) / MR * (s.taps + 1), 2);
    uint32_t *border = slot;
    if (s.joined) slot += int64_t(MC) * s.taps * s.words;
    const int64_t taps = taps_of(t.g, s.joined);
    for (int64_t p = p0; p < p1; p += MC) {
      int64_t count = least(MC, p1 - p);
      point(t.g, s, {&t.g, t.images}, t.from, p, count, rows, border);
      for (int64_t i = 0; i * MR < count; ++i)
        leave_out(taps, t.from.zeros, rows + i * taps * MR, live + i * (taps + 1));
      for (int64_t n = n0; n < n1; n += NC / NR)
        tile(t, p, count, n, least(n1, n + NC / NR), rows, live, scratch, slot);
    }
  }
  // Positions [p, p + count), panels [n0, n1): block of k after block of k.
  static TW_INLINE void tile(const Task &t, int64_t p, int64_t count, int64_t n0, int64_t n1, const char *const *rows,
                             const int32_t *live, uint32_t *scratch, uint32_t *room) {
    const Shape &s = *t.s;
    Block b{};
    const int64_t taps = taps_of(t.g, s.joined);
    for (int64_t chunk = 0; chunk < s.chunks; ++chunk) {
      int64_t from = chunk * s.chunk;
      b.words = least(s.chunk, s.words - from);
      bool first = chunk == 0, last = chunk + 1 == s.chunks;
      uint32_t *fresh = room, *kept = room + (s.fresh ? s.chunk * s.taps * NR : 0);
      for (int64_t n = n0; n < n1; ++n) {
        const uint32_t *panel = t.panels + n * t.panel_words;
        b.start = reinterpret_cast<const int32_t *>(panel);
        b.panel = panel + head + from * taps * NR;
        if (s.fresh) {
          pack_chunk(*t.x, s, t.g, n, chunk, fresh, nullptr);
          b.panel = fresh;
        }
        b.shift = n / s.panels * t.from.bundle + from * 4;
        int64_t column = n % s.panels * NR, columns = least(NR, s.b.columns - column);
        column += n / s.panels * s.b.columns;
        for (int64_t i = 0; i < count; i += MR, kept += MR * NR) {
          b.rows = rows + i * taps;
          b.which = live + i / MR * (taps + 1);
          b.taps = *b.which++;
          b.from = first ? nullptr : kept;
          int64_t positions = least(MR, count - i);
          if (!last) {
            b.ld = NR;
            run(b, positions, kept);
            continue;
          }
          finish(t, b, p + i, positions, column, columns, scratch);
        }
      }
    }
  }
  static TW_INLINE void finish(const Task &t, Block &b, int64_t p, int64_t live, int64_t column, int64_t columns,
                               uint32_t *scratch) {
    const tw_conv_args &x = *t.x;
    bool whole = End::plain && t.flat && columns == NR;
    if (whole && !t.far && (live == MR || live == half)) {
      b.ld = t.pitch;
      return run(b, live, reinterpret_cast<uint32_t *>(End::base(x) + p * t.pitch + column));
    }
    if constexpr (End::only_rounded)
      if (t.flat && (live == MR || live == half)) {
        b.ld = t.pitch;
        return run(b, live, End::base(x) + p * t.pitch + column, columns);
      }
    b.ld = NR;
    run(b, live, scratch);
    if constexpr (End::plain && End::whole_lines)
      if (whole) {
        float *to = End::base(x) + p * t.pitch + column;
        for (int64_t i = 0; i < live; ++i, to += t.pitch)
          for (int v = 0; v < vectors; ++v) End::put(to + v * lanes, load_f(scratch + i * NR + v * lanes), t.far);
        return;
      }
    const Order order{&t.g, t.images};
    Place place = order.place(p);
    for (int64_t i = 0; i < live; ++i, order.next(place))
      End::store(End::row(x, t.g, place, column), reinterpret_cast<const Sum *>(scratch + i * NR), columns);
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static TW_INLINE bool evenly(const Gather &g, const int64_t *strides) {
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis)
      if (g.axis[axis].place_step != 1) return false;
    int64_t step = strides[3];
    for (int axis = TW_CONV_SPATIAL - 1; axis >= 0; --axis) {
      if (g.axis[axis].count > 1 && strides[axis + 1] != step) return false;
      step *= g.axis[axis].count;
    }
    return strides[0] == step || step == 0;
  }
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<uint32_t *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    Shape s = shape(x);
    int64_t threads = useful(x, team_size(stream)), slot = slot_words(s);
    uint32_t *panels = base, *zeros = panels + panels_words(s), *slots = base + shared_words(s);
    for (int64_t part = 0; part < (s.copied ? s.b.count : 1); ++part)
      for (int64_t i = 0; i < s.line; ++i) zeros[part * s.b.part + i] = D::offset ? 0x80808080u : 0u;
    Source from = source_of<way, In>(x, s.b, zeros, s.line);
    if (!s.fresh || s.copied) prepare(x, s, panels, zeros + s.line, stream, threads);
    const int64_t number = classes<way>(x);
    int64_t items = 0;
    for (int64_t index = 0; index < number; ++index) items += pieces(gather_of<way>(x, index), s, threads);
    share_out(stream, threads, items, [&](int64_t worker, int64_t item) {
      uint32_t *at = panels;
      for (int64_t index = 0; index < number; ++index) {
        Task t{&x, &s, gather_of<way>(x, index), from, at, 0, 1, false, End::strides(x)[3], false};
        t.panel_words = head + taps_of(t.g, s.joined) * s.words * NR;
        int64_t here = pieces(t.g, s, threads);
        if (item < here) {
          t.images = order_of(t.g, s, x.batch).images;
          t.flat = t.images == 1 && evenly(t.g, End::strides(x));
          t.far = End::far(x) && t.pitch % lanes == 0;  // lines of a cache are whole in every row
          share(t, finer(t.g, s, grid(t.g, s, threads), threads), item, slots + worker * slot);
          break;
        }
        item -= here;
        at += s.all_panels * t.panel_words;
      }
      streamed();
    });
    return TW_OK;
  }
  static TW_INLINE int64_t pieces(const Gather &g, const Shape &s, int64_t threads) {
    if (g.positions <= 0) return 0;
    Grid cut = finer(g, s, grid(g, s, threads), threads);
    return cut.m * cut.n;
  }
  static void share(const Task &t, const Grid &cut, int64_t part, uint32_t *slot) {
    int64_t rows = up((t.g.positions + cut.m - 1) / cut.m, half), columns = (t.s->all_panels + cut.n - 1) / cut.n;
    int64_t p0 = least(t.g.positions, part % cut.m * rows), n0 = least(t.s->all_panels, part / cut.m * columns);
    rectangle(t, p0, least(t.g.positions, p0 + rows), n0, least(t.s->all_panels, n0 + columns), slot);
  }
  // Panels of every class, and the copy where there is one.
  static void prepare(const tw_conv_args &x, const Shape &s, uint32_t *panels, uint32_t *copy, void *stream,
                      int64_t threads) {
    const int64_t *size = Gathered<way>::sizes(x);
    int64_t lines = s.copied ? x.batch * size[0] * size[1] : 0, workers = threads > 1 ? 4 * threads : 1;
    share_out(stream, threads, workers, [&](int64_t, int64_t worker) {
      uint32_t *at = panels;
      int64_t item = 0;
      for (int64_t index = 0; index < classes<way>(x) && !s.fresh; ++index) {
        Gather g = gather_of<way>(x, index);
        int64_t words = head + taps_of(g, s.joined) * s.words * NR;
        for (int64_t one = 0; one < s.all_panels; ++one, at += words)
          if (item++ % workers == worker) pack_panel(x, s, g, one, at);
      }
      copy_lines<D, way, In>(x, s.b, worker * lines / workers, (worker + 1) * lines / workers, copy);
    });
  }
};

}  // namespace tw
