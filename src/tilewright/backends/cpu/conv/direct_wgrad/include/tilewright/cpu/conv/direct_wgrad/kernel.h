// Backward-weight of few channels: vectors along the filters of a group, taps and channels in registers.
//
// The taps of one row of the window and their channels are `entries` that lie side by side in a line of the input.  A
// register block holds some entries of some filters while pixels go by: a pixel's gradients are a vector or two, and each
// entry is one number of the input that is multiplied by them.  No patches are made: for a run of output lines the lines
// under them are packed once, with the padding as zeros, and so are the gradients.  Dot products of pairs (bf16) multiply
// two pixels at once: a word of the gradients is two neighbours, one of the input an element and the one a stride on.
//
// Accumulators of a band of lines are taken in order, and those of bands added in order: how many bands there are follows from the
// problem alone, so results are the same on any number of threads.
#pragma once
#include <tilewright/cpu/conv/geometry.h>
#include <tilewright/cpu/conv/passing.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

template <class Config> struct ConvDirectWgrad {
  using A = typename Config::A;
  using Out = typename Config::C;
  using D = typename choose<Config::warp_tile_k == 1, DotFloat<A, A>, tw::Dot<A, A>>::type;
  static constexpr int step = D::step;  // pixels multiplied at once
  static constexpr int ME = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr int NC = Config::tile_n, KC = Config::tile_k;  // filters of an item, pixels of a run
  static constexpr int64_t together = 48;  // channels of groups that go by at a time: whole lines of a cache
  static constexpr int64_t enough = 16;    // splits of the work: fewer items are split along the lines
  static constexpr int64_t smallest_share = selection::kSmallestShare;
  static_assert(step == Config::warp_tile_k, "the spec's warp_tile_k is not what this ISA multiplies at once");
  static_assert(NR % lanes == 0 && NC % NR == 0, "tiles do not divide");

  // ---- sizes -------------------------------------------------------------------------------
  struct Shape {
    int64_t entries;             // of a filter
    int64_t row, segments;       // entries side by side, and how many such rows a row of the window is
    int64_t lines, run;          // output lines of all images; how many are packed at once
    int64_t x_lines, x_pitch;    // input lines a run needs for one tap of the depth; floats of one
    int64_t filters, blocks;     // of an item, in whole register blocks; items along the filters
    int64_t y_pixel, y_line;     // words of the gradients of what is multiplied at once: a block's, or fewer; of a line
    int64_t bundle;              // groups of an item
    int64_t items, bands, part;  // groups and filters; splits of the lines; floats of the accumulators of one split
  };
  static TW_INLINE double products(const tw_conv_args &x) {
    return double(x.batch) * double(x.out[0] * x.out[1] * x.out[2]) * double(x.groups * x.filters) *
           double(x.channels * x.window[0] * x.window[1] * x.window[2]);
  }
  static TW_INLINE Shape shape(const tw_conv_args &x) {
    Shape s{};
    bool joined = x.dilation[2] == 1;
    s.entries = x.window[0] * x.window[1] * x.window[2] * x.channels;
    s.row = joined ? x.window[2] * x.channels : x.channels;
    s.segments = joined ? 1 : x.window[2];
    s.lines = x.batch * x.out[0] * x.out[1];
    s.run = least(x.out[1], most(1, KC / x.out[2]));
    s.x_lines = least(x.size[1], (s.run - 1) * x.stride[1] + (x.window[1] - 1) * x.dilation[1] + 1);
    s.x_pitch = ((x.out[2] - 1) * x.stride[2] + (x.window[2] - 1) * x.dilation[2] + 1) * x.channels;
    s.filters = least(NC, up(x.filters, NR));
    s.y_pixel = least(NR, up(x.filters, lanes));
    s.y_line = (x.out[2] + step - 1) / step * s.y_pixel;
    s.blocks = (x.filters + s.filters - 1) / s.filters;
    s.bundle = s.blocks > 1 ? 1 : most(1, least(x.groups, together / most(x.channels, x.filters)));
    s.items = (x.groups + s.bundle - 1) / s.bundle * s.blocks;
    s.part = x.groups * s.blocks * s.entries * s.filters;
    s.bands = 1;
    if (s.items < enough && products(x) >= 2 * double(smallest_share))
      s.bands = most(1, least((enough + s.items - 1) / s.items, s.lines));
    return s;
  }
  static TW_INLINE int64_t y_floats(const tw_conv_args &x, const Shape &s) {
    return s.run * s.y_line * (s.filters / NR);
  }
  static TW_INLINE int64_t slot_floats(const tw_conv_args &x, const Shape &s) {
    int64_t floats = up(y_floats(x, s), 16) + up(x.window[0] * s.x_lines * s.x_pitch, 16);
    return floats + up(s.run * int64_t(sizeof(Span) / 4), 16);
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    Shape s = shape(x);
    return (up(s.bands * s.part, 16) + slot_floats(x, s) * useful(x, threads)) * 4 + 64;
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double most_threads = products(x) / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- packing a run of lines ---------------------------------------------------------------
  struct Run {
    int64_t image, depth, height, lines;  // output lines [height, height + lines) of one depth
    int64_t x_height, x_lines;            // input lines under them
  };
  static TW_INLINE Run run_of(const tw_conv_args &x, const Shape &s, int64_t first, int64_t last) {
    Run r{};
    r.height = first % x.out[1];
    r.depth = first / x.out[1] % x.out[0];
    r.image = first / x.out[1] / x.out[0];
    r.lines = least(least(s.run, last - first), x.out[1] - r.height);
    int64_t top = r.height * x.stride[1] - x.before[1];
    int64_t bottom = top + (r.lines - 1) * x.stride[1] + (x.window[1] - 1) * x.dilation[1];
    r.x_height = most(0, least(top, x.size[1]));
    r.x_lines = most(0, least(bottom + 1, x.size[1]) - r.x_height);
    return r;
  }
  // Filters [n, n + count) of the run, in panels of NR.  Lanes behind the last filter meet no filter.
  static TW_INLINE void pack_y(const tw_conv_args &x, const Shape &s, const Run &r, int64_t n, int64_t count,
                               float *out) {
    const A *y = static_cast<const A *>(x.y) + r.image * x.y_strides[0] + r.depth * x.y_strides[1] + n;
    int64_t there = x.groups * x.filters - n, apart = x.y_strides[3];
    for (int64_t j = 0; j < count; j += NR)
      for (int64_t line = 0; line < r.lines; ++line) {
        const A *from = y + (r.height + line) * x.y_strides[2] + j;
        if constexpr (step == 2)
          for (int64_t p = 0; p < x.out[2]; p += 2, from += 2 * apart, out += s.y_pixel)
            for (int64_t i = 0; i < s.y_pixel; i += lanes)
              store_u(out + i, there > j + i ? words_across<D>(from + i, apart, there - j - i, x.out[2] - p) : vu{});
        else if (s.y_pixel == NR && there - j >= NR)
          for (int64_t p = 0; p < x.out[2]; ++p, from += apart, out += NR)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) store_f(out + v * lanes, load_as_float(from + v * lanes));
        else
          for (int64_t p = 0; p < x.out[2]; ++p, from += apart, out += s.y_pixel)
            for (int64_t i = 0; i < s.y_pixel; i += lanes)
              store_f(out + i, there > j + i ? load_as_float(from + i, there - j - i) : vf{});
      }
  }
  // The channels of a group: lines of pixels side by side, with the padding.
  static TW_INLINE void pack_x(const tw_conv_args &x, const Shape &s, const Run &r, int64_t group, float *out) {
    const A *image = static_cast<const A *>(x.x) + r.image * x.x_strides[0] + group * x.channels;
    int64_t wide = s.x_pitch / x.channels, before = least(x.before[2], wide);
    int64_t inside = most(0, least(x.size[2], wide - before));
    for (int64_t t = 0; t < x.window[0]; ++t, out += s.x_lines * s.x_pitch) {
      int64_t depth = r.depth * x.stride[0] - x.before[0] + t * x.dilation[0];
      if (depth < 0 || depth >= x.size[0]) continue;
      float *to = out;
      for (int64_t line = 0; line < r.x_lines; ++line, to += s.x_pitch) {
        const A *from = image + depth * x.x_strides[1] + (r.x_height + line) * x.x_strides[2];
        float *pixel = to + before * x.channels, *end = pixel + inside * x.channels;
        for (float *one = to; one < pixel; ++one) *one = 0.0f;
        for (float *one = end; one < to + s.x_pitch; ++one) *one = 0.0f;
        if (x.x_strides[3] == x.channels) copy_run(from, inside * x.channels, pixel);
        else
          for (; pixel < end; pixel += x.channels, from += x.x_strides[3]) copy_run(from, x.channels, pixel);
        if constexpr (step == 2) join(to, s.x_pitch, x.stride[2] * x.channels);
      }
    }
  }
  // Elements as words: floats, or the lower halves of pairs.
  static TW_INLINE void copy_run(const A *from, int64_t count, float *to) {
    if constexpr (step == 1) widen_run(from, count, to);
    else
      for (int64_t i = 0; i < count; i += lanes) {
        const int64_t left = count - i;
        store_words(to + i, left < lanes ? widen_halves(from + i, left) : widen_halves(from + i), left);
      }
  }
  // Each word of a line gets that of the next output pixel in its upper half.
  static TW_INLINE void join(float *line, int64_t count, int64_t apart) {
    for (int64_t i = 0; i + apart < count; i += lanes) {
      const int64_t left = count - apart - i;
      store_words(line + i, load_u(line + i) | load_words(line + i + apart, left) << 16, left);
    }
  }

  // ---- one item: some filters of a group, a band of lines ------------------------------------
  struct Item {
    int64_t group, groups, n, filters;  // filters are those of each group
    int64_t first, last;                // output lines
  };
  // Lines of the run that have an input line under row `th` of the window.
  static TW_INLINE int64_t spans_of(const tw_conv_args &x, const Shape &s, const Run &r, int64_t th, Span *spans) {
    int64_t number = 0;
    for (int64_t line = 0; line < r.lines; ++line) {
      int64_t height = (r.height + line) * x.stride[1] - x.before[1] + th * x.dilation[1];
      if (height < 0 || height >= x.size[1]) continue;
      spans[number++] = {(height - r.x_height) * s.x_pitch, line * s.y_line, x.out[2]};
    }
    return number;
  }
  // Some entries side by side of all filters of the item.
  static TW_INLINE void entries(const Shape &s, const Item &item, const Span *spans, int64_t number, const float *ys,
                                int64_t panel, const float *xs, int64_t x_step, int64_t count, float *kept) {
    for (int64_t j = 0; j < item.filters; j += NR, ys += panel, kept += s.entries * NR)
      with_fixed<vectors>((item.filters - j + lanes - 1) / lanes, [&](auto v) {
        with_fixed<ME>(count, [&](auto e) {
          passing_block<D, decltype(e)::value, decltype(v)::value>(spans, number, {xs, ys, x_step * step, s.y_pixel},
                                                                   false, kept, NR);
        });
      });
  }
  // `sums`: group after group, panels of NR filters, entry after entry.
  static void band(const tw_conv_args &x, const Shape &s, const Item &item, float *accum, float *slot) {
    float *ys = slot, *xs = ys + up(y_floats(x, s), 16);
    auto *spans = reinterpret_cast<Span *>(xs + up(x.window[0] * s.x_lines * s.x_pitch, 16));
    __builtin_memset(accum, 0, size_t(item.groups * s.entries * s.filters) * 4);
    for (int64_t line = item.first; line < item.last;) {
      Run r = run_of(x, s, line, item.last);
      line += r.lines;
      for (int64_t g = 0; g < item.groups; ++g) {
        pack_y(x, s, r, (item.group + g) * x.filters + item.n, item.filters, ys);
        pack_x(x, s, r, item.group + g, xs);
        add(x, s, item, r, ys, xs, spans, accum + g * s.entries * s.filters);
      }
    }
  }
  // The packed lines of one group.
  static TW_INLINE void add(const tw_conv_args &x, const Shape &s, const Item &item, const Run &r, const float *ys,
                            const float *xs, Span *spans, float *accum) {
    int64_t x_step = x.stride[2] * x.channels, chunks = (s.row + ME - 1) / ME;
    for (int64_t td = 0; td < x.window[0]; ++td) {
      int64_t depth = r.depth * x.stride[0] - x.before[0] + td * x.dilation[0];
      if (depth < 0 || depth >= x.size[0]) continue;
      for (int64_t th = 0; th < x.window[1]; ++th) {
        int64_t number = spans_of(x, s, r, th, spans), entry = (td * x.window[1] + th) * s.row * s.segments;
        const float *row = xs + td * s.x_lines * s.x_pitch;
        for (int64_t tw = 0; number > 0 && tw < s.segments; ++tw, entry += s.row, row += x.dilation[2] * x.channels)
          for (int64_t c = 0; c < chunks; ++c) {
            int64_t from = c * s.row / chunks, to = (c + 1) * s.row / chunks;
            entries(s, item, spans, number, ys, r.lines * s.y_line, row + from, x_step, to - from,
                    accum + (entry + from) * NR);
          }
      }
    }
  }

  // ---- to the gradient ------------------------------------------------------------------------
  static TW_INLINE int64_t tap_offset(const tw_conv_args &x, int64_t tap) {
    return tap % x.window[2] * x.w_strides[3] + tap / x.window[2] % x.window[1] * x.w_strides[2] +
           tap / x.window[2] / x.window[1] * x.w_strides[1];
  }
  // One vector of filters of one item: the splits added in order, then transposed, so that each filter's entries lie side by
  // side.
  static void write(const tw_conv_args &x, const Shape &s, int64_t filter, int64_t count, float *accum) {
    bool dense = x.w_strides[3] == x.channels && x.w_strides[2] == x.window[2] * x.w_strides[3] &&
                 x.w_strides[1] == x.window[1] * x.w_strides[2];
    for (int64_t e = 0; e < s.entries; e += lanes) {
      vu square[lanes];
      for (int i = 0; i < lanes; ++i) {
        vf sum{};
        if (e + i < s.entries)
          for (int64_t b = 0; b < s.bands; ++b) sum += load_f(accum + b * s.part + (e + i) * NR);
        square[i] = vu(sum);
      }
      transpose(square);
      int64_t here = least(lanes, s.entries - e);
      for (int64_t l = 0; l < count; ++l) {
        Out *to = static_cast<Out *>(x.w) + (filter + l) * x.w_strides[0];
        if (dense) {
          store_from_float(to + e, vf(square[l]), here);
          continue;
        }
        float row[lanes];
        store_u(row, square[l]);
        for (int64_t i = 0; i < here; ++i)
          from_float(row[i], to + tap_offset(x, (e + i) / x.channels) + (e + i) % x.channels);
      }
    }
  }
  static TW_INLINE void write_item(const tw_conv_args &x, const Shape &s, const Item &item, float *accum) {
    for (int64_t g = 0; g < item.groups; ++g, accum += s.entries * s.filters)
      for (int64_t j = 0; j < item.filters; j += lanes)
        write(x, s, (item.group + g) * x.filters + item.n + j, least(lanes, item.filters - j),
              accum + j / NR * s.entries * NR + j % NR);
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static TW_INLINE Item item_of(const tw_conv_args &x, const Shape &s, int64_t index, int64_t b) {
    int64_t group = index / s.blocks * s.bundle, n = index % s.blocks * s.filters;
    return {group,
            least(s.bundle, x.groups - group),
            n,
            least(s.filters, x.filters - n),
            b * s.lines / s.bands,
            (b + 1) * s.lines / s.bands};
  }
  // Where the accumulators of an item's first group are in a split.
  static TW_INLINE int64_t place(const Shape &s, const Item &item) {
    return (item.group * s.blocks + item.n / s.filters) * s.entries * s.filters;
  }
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    Shape s = shape(x);
    int64_t threads = useful(x, team_size(stream)), slot = slot_floats(x, s);
    float *slots = base + up(s.bands * s.part, 16);
    share_out(stream, threads, s.items * s.bands, [&](int64_t worker, int64_t index) {
      Item item = item_of(x, s, index / s.bands, index % s.bands);
      float *accum = base + index % s.bands * s.part + place(s, item);
      band(x, s, item, accum, slots + worker * slot);
      if (s.bands == 1) write_item(x, s, item, accum);
    });
    if (s.bands > 1)
      share_out(stream, threads, s.items, [&](int64_t, int64_t index) {
        Item item = item_of(x, s, index, 0);
        write_item(x, s, item, base + place(s, item));
      });
    return TW_OK;
  }
};

}  // namespace tw
