// Backward-weight: every output pixel adds the outer product of its channels and those of the input pixel under a tap.
//
// A register block holds the gradient of some filters (rows) and vectors of channels for one tap while pixels go by.
// For a run of output lines both operands are packed, filters and channels side by side and widened to fp32; padding
// is never visited, for the pixels of a line whose tap lies inside are a range.  Where channels are few, columns run
// over taps and channels together, and the packed lines are the patches of the run.
//
// Dot products of pairs (bf16) multiply two pixels at once.  Where a tap's range begins is any pixel, so each packed pixel
// is a pair: itself and the one under the next output pixel.  Of a range's pairs every other one is multiplied.
//
// Accumulators of a run are added to those of the runs before it, in order; with split-K, splits lie in the workspace and are
// added in order at the end.  Results are the same on any number of threads, every time.
#pragma once
#include <tilewright/cpu/conv/geometry.h>
#include <tilewright/cpu/conv/passing.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

template <class Config> struct ConvOuter {
  using A = typename Config::A;
  using Out = typename Config::C;
  using D = typename choose<Config::warp_tile_k == 1, DotFloat<A, A>, tw::Dot<A, A>>::type;
  static constexpr bool pairs = D::step == 2;
  static constexpr int MR = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr int MC = Config::tile_m, NC = Config::tile_n, KC = Config::tile_k;  // filters, channels, pixels
  static constexpr int split = Config::split_k;
  static constexpr int64_t few_channels = 16;    // below: columns are taps and channels together
  static constexpr int64_t few_accum = 1 << 15;  // that one item keeps, however many filters they are of
  static constexpr int64_t few_uses = 4;         // of a packed gradient: fewer, and it is not packed
  static constexpr int64_t smallest_share = selection::kSmallestShare;
  static_assert(D::step == Config::warp_tile_k, "the spec's warp_tile_k is not what this ISA multiplies at once");
  static_assert(NR % lanes == 0 && MC % MR == 0 && NC % NR == 0, "tiles do not divide");

  // ---- sizes -------------------------------------------------------------------------------
  struct Shape {
    bool patches;              // columns are taps and channels together
    bool single;               // one tap in height and width: only pixels under it are packed
    int64_t columns, taps;     // of one filter: channels, and taps apart from them
    int64_t lines, run, runs;  // output lines of all images; how many are packed at once; how many times
    int64_t mc, nc;            // filters and columns of one item
    bool y_in_place;           // the gradient is read where it lies: packing it would not pay
    int64_t x_lines, x_width;  // input lines and pixels a run needs at most
    int64_t y_pixel, x_pixel;  // floats between pixels of what a block reads
  };
  static TW_INLINE Shape shape(const tw_conv_args &x) {
    Shape s{};
    int64_t window = x.window[0] * x.window[1] * x.window[2];
    s.patches = x.channels < few_channels && window > 1;
    s.single = !s.patches && x.window[1] == 1 && x.window[2] == 1;
    s.columns = s.patches ? window * x.channels : x.channels;
    s.taps = s.patches ? 1 : window;
    s.lines = x.batch * x.out[0] * x.out[1];
    s.run = least(x.out[1], most(1, KC / most(1, x.out[2])));  // lines of one image and depth
    s.runs = x.batch * x.out[0] * ((x.out[1] + s.run - 1) / s.run);
    s.mc = least(s.patches && x.filters * s.columns <= few_accum ? x.filters + MR : MC, up(x.filters, MR));
    s.y_in_place = same<A, float>::value && s.taps * ((s.columns + NR - 1) / NR) <= few_uses &&
                   (s.run == 1 || x.y_strides[2] == x.out[2] * x.y_strides[3]);
    s.nc = s.patches ? up(s.columns, NR) : least(NC, up(s.columns, NR));
    int64_t reach = least(x.size[1], (s.run - 1) * x.stride[1] + (x.window[1] - 1) * x.dilation[1] + 1);
    s.x_lines = s.patches ? s.run : x.window[0] * (s.single ? s.run : reach);
    s.x_width = s.patches || s.single ? x.out[2] : x.size[2];
    s.y_pixel = s.y_in_place ? x.y_strides[3] : MR;
    s.x_pixel = s.patches ? s.nc : NR;
    return s;
  }
  static TW_INLINE int64_t slot_words(const tw_conv_args &x, const Shape &s) {
    int64_t words = s.run * x.out[2] * s.mc + lanes;   // packed gradient
    words += s.x_lines * s.x_width * s.nc + lanes;     // packed input
    words += s.mc * s.nc * s.taps;                     // accumulators
    words += (s.run + 1) * int64_t(sizeof(Span) / 4);  // spans of a tap
    return up(words, 16);
  }
  static TW_INLINE int64_t part_words(const tw_conv_args &x) {
    int64_t window = x.window[0] * x.window[1] * x.window[2];
    return split > 1 ? up(x.groups * x.filters * window * x.channels, 16) : 0;
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    return (slot_words(x, shape(x)) * useful(x, threads) + part_words(x) * split) * 4 + 64;
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double work = double(x.batch) * double(x.out[0] * x.out[1] * x.out[2]) * double(x.groups * x.filters) *
                  double(x.channels * x.window[0] * x.window[1] * x.window[2]);
    double most_threads = work / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- packing a run of lines ---------------------------------------------------------------
  struct Run {
    int64_t image, depth, height, lines;  // output lines [height, height + lines) of one depth
    int64_t x_height, x_lines;            // input lines that are packed, for each tap of the depth
  };
  static TW_INLINE Run run_of(const tw_conv_args &x, const Shape &s, int64_t index) {
    int64_t pieces = (x.out[1] + s.run - 1) / s.run;
    Run r{};
    r.height = index % pieces * s.run;
    r.lines = least(s.run, x.out[1] - r.height);
    r.depth = index / pieces % x.out[0];
    r.image = index / pieces / x.out[0];
    int64_t first = r.height * x.stride[1] - x.before[1];
    int64_t last = (r.height + r.lines - 1) * x.stride[1] - x.before[1] + (x.window[1] - 1) * x.dilation[1];
    r.x_height = most(0, least(first, x.size[1]));
    r.x_lines = s.single ? r.lines : most(0, least(last + 1, x.size[1]) - r.x_height);
    return r;
  }
  // A line of `count` pixels, `columns` elements each, into out[pixel * Width]; what is behind `columns` may be read
  // as far as there are `whole`.  Whole vectors are written: what is left over of one is overwritten by the next pixel,
  // or lies behind the last.  Lanes behind `columns` meet no filter and no channel.  In pairs a pixel has the one `apart`
  // pixels on beside it.
  template <int Width, class T> static TW_INLINE void pack_line(const T *from, int64_t step,
                                                                [[maybe_unused]] int64_t apart, int64_t count,
                                                                int64_t columns, int64_t whole, float *out) {
    constexpr int parts = (Width + lanes - 1) / lanes;
    if constexpr (pairs) {
      int64_t p = 0;
      if (whole >= parts * lanes)
        for (; p + apart < count; ++p, from += step, out += Width)
#pragma GCC unroll 8
          for (int v = 0; v < parts; ++v) store_u(out + v * lanes, D::across(from + v * lanes, apart * step));
      for (; p < count; ++p, from += step, out += Width)
        for (int v = 0; v < parts; ++v) {
          const int64_t left = columns - v * lanes, deep = p + apart < count ? 2 : 1;
          store_u(out + v * lanes, left > 0 ? words_across<D>(from + v * lanes, apart * step, left, deep) : vu{});
        }
      return;
    }
    if (whole >= parts * lanes) {
      for (int64_t p = 0; p < count; ++p, from += step, out += Width)
#pragma GCC unroll 8
        for (int v = 0; v < parts; ++v) store_f(out + v * lanes, load_as_float(from + v * lanes));
      return;
    }
    for (int64_t p = 0; p < count; ++p, from += step, out += Width)
#pragma GCC unroll 8
      for (int v = 0; v < parts; ++v)
        store_f(out + v * lanes, columns > v * lanes ? load_as_float(from + v * lanes, columns - v * lanes) : vf{});
  }
  // Filters [n, n + count) of the run: panels of MR.
  static TW_INLINE void pack_y(const tw_conv_args &x, const Run &r, int64_t n, int64_t count, float *out) {
    const A *y = static_cast<const A *>(x.y) + r.image * x.y_strides[0] + r.depth * x.y_strides[1] + n;
    int64_t whole = x.groups * x.filters - n;
    for (int64_t j = 0; j < count; j += MR)
      for (int64_t line = 0; line < r.lines; ++line, out += x.out[2] * MR)
        pack_line<MR>(y + (r.height + line) * x.y_strides[2] + j, x.y_strides[3], 1, x.out[2], least(MR, count - j),
                      whole - j, out);
  }
  // Channels [c, c + count): panels of NR, in each the input lines for every tap of the depth.
  static TW_INLINE void pack_x(const tw_conv_args &x, const Shape &s, const Run &r, int64_t c, int64_t count,
                               float *out) {
    const A *from = static_cast<const A *>(x.x) + r.image * x.x_strides[0] + c;
    int64_t whole = x.groups * x.channels - c, step = s.single ? x.stride[2] : 1, apart = x.stride[2] / step;
    Within inside = within(x, 0);
    int64_t first = s.single ? inside.x : 0, skipped = s.single ? inside.y : 0;
    int64_t pixels = s.single ? inside.count : s.x_width;
    for (int64_t j = 0; j < count; j += NR, out += s.x_lines * s.x_width * NR)
      for (int64_t t = 0; t < x.window[0]; ++t) {
        int64_t depth = r.depth * x.stride[0] - x.before[0] + t * x.dilation[0];
        if (depth < 0 || depth >= x.size[0]) continue;
        const A *lines = from + depth * x.x_strides[1] + first * x.x_strides[3] + j;
        float *to = out + (t * r.x_lines * s.x_width + skipped) * NR;
        for (int64_t line = 0; line < r.x_lines; ++line, to += s.x_width * NR) {
          int64_t height = s.single ? (r.height + line) * x.stride[1] - x.before[1] : r.x_height + line;
          if (height < 0 || height >= x.size[1]) continue;
          pack_line<NR>(lines + height * x.x_strides[2], step * x.x_strides[3], apart, pixels, least(NR, count - j),
                        whole - j, to);
        }
      }
  }
  // Patches: all pixels of the run, the taps and channels of each side by side, `pitch` floats a pixel.
  static void pack_patches(const tw_conv_args &x, const Run &r, int64_t group, float *out, int64_t pitch) {
    const A *image = static_cast<const A *>(x.x) + r.image * x.x_strides[0] + group * x.channels;
    bool joined = x.dilation[2] == 1 && x.x_strides[3] == x.channels;
    int64_t row = x.window[2] * x.channels;
    float *pixel = out;
    for (int64_t line = 0; line < r.lines; ++line)
      for (int64_t p = 0; p < x.out[2]; ++p, pixel += pitch) {
        float *to = pixel;
        int64_t w0 = p * x.stride[2] - x.before[2];
        for (int64_t td = 0; td < x.window[0]; ++td)
          for (int64_t th = 0; th < x.window[1]; ++th, to += row) {
            int64_t depth = r.depth * x.stride[0] - x.before[0] + td * x.dilation[0];
            int64_t height = (r.height + line) * x.stride[1] - x.before[1] + th * x.dilation[1];
            bool inside = depth >= 0 && depth < x.size[0] && height >= 0 && height < x.size[1];
            const A *from = image + depth * x.x_strides[1] + height * x.x_strides[2] + w0 * x.x_strides[3];
            if (inside && joined && w0 >= 0 && w0 + x.window[2] <= x.size[2]) copy_row(from, row, to);
            else border_row(x, inside ? from : nullptr, w0, to);
          }
      }
    if constexpr (pairs)
      for (; out + pitch < pixel; out += pitch)
        for (int64_t c = 0; c < pitch; c += lanes) store_u(out + c, load_u(out + c) | load_u(out + pitch + c) << 16);
  }
  // In pairs an element is the lower half of a word, until it is joined with the next pixel's.
  static TW_INLINE void copy_row(const A *from, int64_t count, float *to) {
    auto one = [&](int64_t i, auto... left) {
      if constexpr (pairs) store_u(to + i, widen_halves(from + i, left...));
      else store_f(to + i, load_as_float(from + i, left...));
    };
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) one(i);
    if (i < count) one(i, count - i);  // the rest is overwritten by the next row
  }
  static void border_row(const tw_conv_args &x, const A *from, int64_t w0, float *to) {
    for (int64_t t = 0; t < x.window[2]; ++t) {
      int64_t w = w0 + t * x.dilation[2];
      bool inside = from && w >= 0 && w < x.size[2];
      for (int64_t c = 0; c < x.channels; ++c, ++to) {
        *to = 0.0f;
        if (!inside) continue;
        const A &element = from[t * x.dilation[2] * x.x_strides[3] + c];
        if constexpr (pairs) __builtin_memcpy(to, &element, sizeof element);
        else *to = to_float(element);
      }
    }
  }
  // The output pixels of a line whose tap `t` of the width lies inside, and the input pixel under the first.
  struct Within {
    int64_t y, x, count;
  };
  static TW_INLINE Within within(const tw_conv_args &x, int64_t t) {
    int64_t offset = t * x.dilation[2] - x.before[2], stride = x.stride[2];
    int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    int64_t last = x.size[2] - 1 - offset < 0 ? 0 : least(x.out[2], (x.size[2] - 1 - offset) / stride + 1);
    return {first, first * stride + offset, most(0, last - first)};
  }

  // ---- one item: some filters, some columns, all taps ------------------------------------------
  struct Item {
    int64_t group, n, filters, c, columns;  // within the group
    int64_t first_run, last_run;
  };
  static TW_INLINE int64_t spans_of(const tw_conv_args &x, const Shape &s, const Run &r, int64_t tap, Span *spans) {
    if (s.patches) {  // of pairs none reaches into the next line
      const int64_t number = pairs ? r.lines : 1, count = r.lines * x.out[2] / number;
      for (int64_t i = 0; i < number; ++i) spans[i] = {i * count * s.y_pixel, i * count * s.x_pixel, count};
      return number;
    }
    int64_t tw = tap % x.window[2], th = tap / x.window[2] % x.window[1], td = tap / x.window[2] / x.window[1];
    int64_t depth = r.depth * x.stride[0] - x.before[0] + td * x.dilation[0], number = 0;
    Within inside = within(x, tw);
    if (depth < 0 || depth >= x.size[0] || inside.count == 0) return 0;
    for (int64_t line = 0; line < r.lines; ++line) {
      int64_t height = (r.height + line) * x.stride[1] - x.before[1] + th * x.dilation[1];
      if (height < 0 || height >= x.size[1]) continue;
      int64_t packed = s.single ? line : height - r.x_height, first = s.single ? inside.y : inside.x;
      spans[number++] = {(line * x.out[2] + inside.y) * s.y_pixel,
                         ((td * r.x_lines + packed) * s.x_width + first) * s.x_pixel, inside.count};
    }
    return number;
  }
  // What is packed has filters of nobody behind the last; what lies in place may end there.
  template <int V> static TW_INLINE void block(const Shape &s, const Span *spans, int64_t number, const Passing &o,
                                               int64_t filters, bool first, float *kept) {
    if (filters >= MR || !s.y_in_place) return passing_block<D, MR, V>(spans, number, o, first, kept, s.nc);
    Passing one = o;
    for (int64_t i = 0; i < filters; ++i, ++one.singles, kept += s.nc)
      passing_block<D, 1, V>(spans, number, one, first, kept, s.nc);
  }
  static void work(const tw_conv_args &x, const Shape &s, const Item &item, Out *dw, float *part, float *slot) {
    float *ys = slot, *xs = ys + s.run * x.out[2] * s.mc + lanes;
    float *accum = xs + s.x_lines * s.x_width * s.nc + lanes;
    auto *spans = reinterpret_cast<Span *>(accum + s.mc * s.nc * s.taps);
    int64_t step = s.patches || s.single ? s.x_pixel : x.stride[2] * NR;
    bool first = true;
    for (int64_t index = item.first_run; index < item.last_run; ++index, first = false) {
      Run r = run_of(x, s, index);
      int64_t filter = item.group * x.filters + item.n;
      if (!s.y_in_place) pack_y(x, r, filter, item.filters, ys);
      Passing o{ys, xs, s.y_pixel * D::step, step * D::step};
      const float *y = ys;
      if constexpr (same<A, float>::value)
        if (s.y_in_place)
          y = static_cast<const float *>(x.y) + r.image * x.y_strides[0] + r.depth * x.y_strides[1] +
              r.height * x.y_strides[2] + filter;
      if (s.patches) pack_patches(x, r, item.group, xs, s.x_pixel);
      else pack_x(x, s, r, item.group * x.channels + item.c, item.columns, xs);
      int64_t x_panel = s.patches ? NR : s.x_lines * s.x_width * NR;
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        int64_t number = spans_of(x, s, r, tap, spans);
        if (number == 0 && !first) continue;
        float *kept = accum + tap * s.mc * s.nc;
        for (int64_t c = 0; c < item.columns; c += NR)
          with_fixed<vectors>((item.columns - c + lanes - 1) / lanes, [&](auto v) {
            o.vectors = xs + c / NR * x_panel;
            for (int64_t n = 0; n < item.filters; n += MR) {
              o.singles = s.y_in_place ? y + n : y + n * r.lines * x.out[2];
              block<decltype(v)::value>(s, spans, number, o, least(MR, item.filters - n), first, kept + n * s.nc + c);
            }
          });
      }
    }
    write(x, s, item, accum, dw, part, first);
  }
  // To the gradient, or to a split of it: filters, taps and channels side by side.
  static void write(const tw_conv_args &x, const Shape &s, const Item &item, const float *accum, Out *dw, float *part,
                    bool nothing) {
    int64_t window = x.window[0] * x.window[1] * x.window[2];
    for (int64_t n = 0; n < item.filters; ++n) {
      int64_t filter = item.group * x.filters + item.n + n;
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        const float *row = accum + tap * s.mc * s.nc + n * s.nc;
        for (int64_t c = 0; c < item.columns;) {
          int64_t column = item.c + c, t = s.patches ? column / x.channels : tap;
          int64_t channel = s.patches ? column % x.channels : column;
          int64_t count = s.patches ? least(x.channels - channel, item.columns - c) : item.columns;
          if (split > 1) put(row + c, count, part + (filter * window + t) * x.channels + channel, nothing);
          else put(row + c, count, dw + filter * x.w_strides[0] + tap_offset(x, t) + channel, nothing);
          c += count;
        }
      }
    }
  }
  static TW_INLINE int64_t tap_offset(const tw_conv_args &x, int64_t tap) {
    return tap % x.window[2] * x.w_strides[3] + tap / x.window[2] % x.window[1] * x.w_strides[2] +
           tap / x.window[2] / x.window[1] * x.w_strides[1];
  }
  template <class T> static TW_INLINE void put(const float *from, int64_t count, T *to, bool nothing) {
    for (int64_t i = 0; i < count; i += lanes)
      store_from_float(to + i, nothing ? vf{} : load_as_float(from + i, count - i), count - i);
  }

  // ---- the kernel ---------------------------------------------------------------------------
  struct Grid {
    int64_t m, n, mc, nc;  // pieces along filters and columns, and their sizes
  };
  // The tile, cut smaller where a team would have nothing to do.
  static TW_INLINE Grid grid(const tw_conv_args &x, const Shape &s, int64_t threads) {
    Grid g{};
    g.mc = s.mc;
    g.nc = s.nc;
    for (;;) {
      g.m = (x.filters + g.mc - 1) / g.mc;
      g.n = (s.columns + g.nc - 1) / g.nc;
      int64_t items = g.m * g.n * x.groups * split;
      if (items >= 2 * threads || items % threads == 0) break;
      if (g.mc > MR && (g.mc >= g.nc || s.patches)) g.mc = up(g.mc / 2, MR);
      else if (g.nc > NR && !s.patches) g.nc = up(g.nc / 2, NR);
      else if (g.mc > MR) g.mc = up(g.mc / 2, MR);
      else break;
    }
    g.mc = up((x.filters + g.m - 1) / g.m, MR);  // even pieces
    g.nc = up((s.columns + g.n - 1) / g.n, NR);
    return g;
  }
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    Shape s = shape(x);
    int64_t threads = useful(x, team_size(stream)), slot = slot_words(x, s), part = part_words(x);
    Grid g = grid(x, s, threads);
    float *parts = base + slot * threads;
    int64_t items = x.groups * split * g.m * g.n;
    share_out(stream, threads, items, [&](int64_t worker, int64_t index) {
      Item item{};
      int64_t piece = index % (g.m * g.n), k = index / (g.m * g.n) % split;
      item.group = index / (g.m * g.n) / split;
      item.n = piece / g.n * g.mc;
      item.c = piece % g.n * g.nc;
      item.filters = least(g.mc, x.filters - item.n);
      item.columns = least(g.nc, s.columns - item.c);
      if (item.filters <= 0 || item.columns <= 0) return;
      item.first_run = k * s.runs / split;
      item.last_run = (k + 1) * s.runs / split;
      work(x, s, item, static_cast<Out *>(x.w), parts + k * part, base + worker * slot);
    });
    if constexpr (split > 1) add_splits(x, parts, part, stream, threads);
    return TW_OK;
  }
  static void add_splits(const tw_conv_args &x, const float *parts, int64_t part, void *stream, int64_t threads) {
    int64_t window = x.window[0] * x.window[1] * x.window[2], rows = x.groups * x.filters * window;
    parallel(stream, threads, [&](int64_t worker) {
      for (int64_t row = worker * rows / threads; row < (worker + 1) * rows / threads; ++row) {
        Out *to = static_cast<Out *>(x.w) + row / window * x.w_strides[0] + tap_offset(x, row % window);
        for (int64_t c = 0; c < x.channels; c += lanes) {
          vf sum{};
          for (int k = 0; k < split; ++k) sum += load_as_float(parts + k * part + row * x.channels + c, x.channels - c);
          store_from_float(to + c, sum, x.channels - c);
        }
      }
    });
  }
};

}  // namespace tw
