// Forward and backward-data with vectors along the pixels of a line, for results of few channels: small groups of any
// size, gradients of a first layer's input, last layers.
//
// The lines a band of the result reads are transposed into planes, one a channel, with the padding as zeros; where results
// lie apart in them, planes are taken apart by residue, so that neighbours of a result are neighbours there.  Lines of a
// plane follow each other with one pitch, and so a tap is the same place everywhere, moved: vectors run over the ends of
// lines.  A register block is some channels of the result by some vectors of pixels; results are transposed back on
// their way out.  However few or odd the channels are, all lanes have work.
//
// A result is summed by one register over channels and taps in order: it is the same on any number of threads.
#pragma once
#include <tilewright/cpu/conv/geometry.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

// out[r][v] = sum over `depth` channels and `taps` places of weight[r] * vector v there; channels are `plane` floats apart.
template <int Rows, int Vectors, int Pitch>
__attribute__((noinline)) void planar_block(const float *planes, int64_t plane, int64_t depth, const int64_t *places,
                                            int64_t taps, const float *weights, bool first, float *out) {
  vf accum[Rows][Vectors];
#pragma GCC unroll 32
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) accum[r][v] = first ? vf{} : load_f(out + r * Pitch + v * lanes);
  for (int64_t c = 0; c < depth; ++c, planes += plane)
    for (int64_t t = 0; t < taps; ++t, weights += Rows) {
      const float *from = planes + places[t];
      vf x[Vectors];
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; ++v) x[v] = vf(held(load_u(from + v * lanes)));
#pragma GCC unroll 32
      for (int r = 0; r < Rows; ++r) {
        vf weight = splat(weights[r]);
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) accum[r][v] = accum[r][v] + x[v] * weight;
      }
    }
#pragma GCC unroll 32
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) store_f(out + r * Pitch + v * lanes, accum[r][v]);
}

template <class Config> struct ConvPlanar {
  using In = typename Config::A;
  using End = ConvFinish<Config>;
  using Sum = typename End::Sum;
  static constexpr ConvVariant way = Config::variant;
  static constexpr int MR = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr int64_t planes_floats = Config::planes;  // of a band, about
  static constexpr int64_t together = 48;  // channels of groups that are transposed at a time: whole lines of a cache
  static constexpr int64_t smallest_share = selection::kSmallestShare;
  static_assert(NR % lanes == 0 && !is_int<In>, "whole vectors of floats");

  // ---- sizes -------------------------------------------------------------------------------
  static TW_INLINE int64_t depth_of(const tw_conv_args &x) {
    return way == ConvVariant::forward ? x.channels : x.filters;
  }
  static TW_INLINE int64_t columns_of(const tw_conv_args &x) {
    return way == ConvVariant::forward ? x.filters : x.channels;
  }
  static TW_INLINE const int64_t *read_strides(const tw_conv_args &x) {
    return way == ConvVariant::forward ? x.x_strides : x.y_strides;
  }
  static TW_INLINE const In *read_data(const tw_conv_args &x) {
    return static_cast<const In *>(way == ConvVariant::forward ? x.x : x.y);
  }
  // Memory that has planes already: channels apart, pixels of a line side by side.
  static constexpr int read = way == ConvVariant::forward ? 0 : 2, written = 2 - read;
  static TW_INLINE bool reads_planes(const tw_conv_args &x) {
    return read_strides(x)[TW_CONV_SPATIAL + 1] != 1 && read_strides(x)[TW_CONV_SPATIAL] == 1;
  }
  // Results too: where they lie side by side as they are computed, and the D tensors with them.
  static TW_INLINE bool stores_planes(const tw_conv_args &x) {
    const int64_t *s = End::strides(x);
    if (s[TW_CONV_SPATIAL + 1] == 1 || s[TW_CONV_SPATIAL] != 1) return false;
    if (way == ConvVariant::backward_data && x.stride[2] != 1) return false;
    for (int t = 0; t < Config::num_d; ++t)
      if (x.d_strides[t][TW_CONV_SPATIAL] != 0 && x.d_strides[t][TW_CONV_SPATIAL] != 1) return false;
    return true;
  }
  static TW_INLINE bool takes(const tw_conv_args &x, int operand) {
    return operand == read ? reads_planes(x) : (operand == written || operand > 2) && stores_planes(x);
  }
  // The planes of a band of `lines` result lines.
  struct Planes {
    int64_t low[2], step[2];  // height and width: the first position read for result 0; positions between two results
    int64_t pitch, height;    // of one residue's part of a plane
    int64_t part, plane;      // floats of such a part, and of all parts
    int64_t depths;           // taps of the depth: each has its planes
  };
  static TW_INLINE int64_t places_along(const Axis &a, int64_t count) {
    int64_t span = (most(1, a.taps) - 1) * (a.offset_step < 0 ? -a.offset_step : a.offset_step) + 1;
    return ((count - 1) * a.step + span + a.step - 1) / a.step;
  }
  static TW_INLINE Planes planes_of(const Gather &g, int64_t lines) {
    Planes p{};
    for (int i = 0; i < 2; ++i) {
      const Axis &a = g.axis[i + 1];
      p.low[i] = a.offset + least(0, (most(1, a.taps) - 1) * a.offset_step);
      p.step[i] = a.step;
    }
    p.pitch = places_along(g.axis[2], g.axis[2].count);
    p.height = places_along(g.axis[1], lines);
    p.part = up(p.pitch * p.height + NR + lanes, 16);
    p.plane = p.part * p.step[0] * p.step[1];
    p.depths = g.axis[0].taps;
    return p;
  }
  static TW_INLINE int64_t floats(const Planes &p, int64_t depth) { return p.depths * depth * p.plane; }
  // Groups whose planes are made at a time.
  static TW_INLINE int64_t bundle_of(const tw_conv_args &x) {
    if (reads_planes(x) && stores_planes(x)) return 1;  // nothing is transposed: no group is nearer with another
    return most(1, least(x.groups, together / most(depth_of(x), columns_of(x))));
  }
  // Lines of a band: as many as planes have room for, and no fewer than make its border worth it.
  static TW_INLINE int64_t band_lines(const tw_conv_args &x, const Gather &g, int64_t threads) {
    int64_t all = g.axis[1].count, bundle = bundle_of(x), depth = bundle * depth_of(x);
    int64_t others = x.batch * g.axis[0].count * ((x.groups + bundle - 1) / bundle);
    int64_t lines = (all + most(1, 2 * threads / most(1, others)) - 1) / most(1, 2 * threads / most(1, others));
    int64_t fewest = least(lines, places_along(g.axis[1], 1) * 2);
    while (lines > fewest && floats(planes_of(g, lines), depth) > planes_floats) lines = most(fewest, lines * 3 / 4);
    return most(1, lines);
  }
  static TW_INLINE int64_t slot_floats(const tw_conv_args &x, int64_t threads) {
    int64_t largest = 0;
    for (int64_t index = 0; index < classes<way>(x); ++index) {
      Gather g = gather_of<way>(x, index);
      if (g.positions == 0) continue;
      int64_t room = floats(planes_of(g, band_lines(x, g, threads)), bundle_of(x) * depth_of(x));
      largest = most(largest, room + g.axis[1].taps * g.axis[2].taps * 2);
    }
    return up(largest, 16) + up(bundle_of(x) * columns_of(x), lanes) * NR + lanes * lanes;
  }
  static TW_INLINE int64_t weight_floats(const tw_conv_args &x) {
    return up(x.groups * x.filters * x.channels * x.window[0] * x.window[1] * x.window[2], 16);
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    int64_t team = useful(x, threads);
    return (weight_floats(x) + slot_floats(x, team) * team) * 4 + 64;
  }
  static TW_INLINE double work_of(const tw_conv_args &x) {
    return double(x.batch) * double(x.out[0] * x.out[1] * x.out[2]) * double(x.groups * x.filters) *
           double(x.channels * x.window[0] * x.window[1] * x.window[2]);
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double most_threads = work_of(x) / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- weights --------------------------------------------------------------------------------
  // Channels of the result in even pieces of at most MR.
  static TW_INLINE int64_t pieces(const tw_conv_args &x) { return (columns_of(x) + MR - 1) / MR; }
  static TW_INLINE int64_t piece(const tw_conv_args &x, int64_t index) { return index * columns_of(x) / pieces(x); }
  // Of one group: piece, tap of the depth, channel, tap, channel of the result.
  static void pack(const tw_conv_args &x, const Gather &g, int64_t group, float *out) {
    const In *w = static_cast<const In *>(x.w) + group * x.filters * x.w_strides[0];
    const Axis &d = g.axis[0], &h = g.axis[1], &a = g.axis[2];
    int64_t depth = depth_of(x), taps = h.taps * a.taps;
    for (int64_t one = 0; one < pieces(x); ++one) {
      int64_t row = piece(x, one), rows = piece(x, one + 1) - row;
      for (int64_t td = 0; td < d.taps; ++td, out += depth * taps * rows)
        for (int64_t tap = 0; tap < taps; ++tap) {
          const In *at = w + (d.tap + td * d.tap_step) * x.w_strides[1] +
                         (h.tap + tap / a.taps * h.tap_step) * x.w_strides[2] +
                         (a.tap + tap % a.taps * a.tap_step) * x.w_strides[3];
          if (way == ConvVariant::forward)
            pack_across(at + row * x.w_strides[0], x.w_strides[0], depth, rows, out + tap * rows, taps * rows);
          else
            for (int64_t c = 0; c < depth; ++c)
              widen_run(at + c * x.w_strides[0] + row, rows, out + (c * taps + tap) * rows);
        }
    }
  }
  // Channels of one tap of `rows` filters: those of one channel side by side, `apart` floats from the next.
  static TW_INLINE void pack_across(const In *from, int64_t step, int64_t depth, int64_t rows, float *out,
                                    int64_t apart) {
    for (int64_t c = 0; c < depth; c += lanes)
      for (int64_t r = 0; r < rows; r += lanes) {
        vu square[lanes];
        for (int i = 0; i < lanes; ++i)
          square[i] = r + i < rows ? vu(load_as_float(from + (r + i) * step + c, depth - c)) : vu{};
        transpose(square);
        for (int64_t i = 0; i < lanes && i < depth - c; ++i)
          store_words(out + (c + i) * apart + r, square[i], rows - r);
      }
  }

  // Result lines [first, first + lines) of one depth of an image, of some groups.
  struct Task {
    const tw_conv_args *x;
    Gather g;
    Planes p;
    const float *weights;  // of this class
    int64_t image, depth, group, groups, first, lines;
  };

  // ---- planes ---------------------------------------------------------------------------------
  // A line's pixels of one residue: places [0, pitch) of it, those inside from `from` on, `step` elements apart.  Of a
  // pixel `there` elements may be read; and where lines are dense, `rest` from the first pixel on.
  static TW_INLINE void turn_line(const In *from, int64_t step, int64_t before, int64_t inside, int64_t depth,
                                  int64_t there, int64_t rest, const Planes &p, float *out) {
    for (int64_t c = 0; c < depth; c += lanes)
      for (int64_t m = 0; m < p.pitch; m += lanes) {
        vu square[lanes];
        const In *pixel = from + (m - before) * step + c;
        bool all = m >= before && m + lanes <= before + inside;
        bool whole = there - c >= lanes || (all && rest - (m + lanes - 1 - before) * step - c >= lanes);
#pragma GCC unroll 16
        for (int i = 0; i < lanes; ++i, pixel += step) {
          bool here = all || (m + i >= before && m + i < before + inside);
          square[i] = !here ? vu{} : vu(whole ? load_as_float(pixel) : load_as_float(pixel, there - c));
        }
        transpose(square);
        float *to = out + c * p.plane + m;
        for (int64_t i = 0; i < lanes && i < depth - c; ++i) store_u(to + i * p.plane, square[i]);
      }
  }
  // The same where channels are planes already.
  static TW_INLINE void copy_line(const In *from, int64_t step, int64_t across, int64_t before, int64_t inside,
                                  int64_t depth, const Planes &p, float *out) {
    for (int64_t c = 0; c < depth; ++c, from += across, out += p.plane) {
      for (int64_t m = 0; m < before; ++m) out[m] = 0;
      if (step == 1) widen_run(from, inside, out + before);
      else
        for (int64_t m = 0; m < inside; ++m) out[before + m] = to_float(from[m * step]);
      for (int64_t m = before + inside; m < p.pitch; ++m) out[m] = 0;
    }
  }
  static TW_INLINE void clear_line(int64_t depth, const Planes &p, float *out) {
    for (int64_t c = 0; c < depth; ++c, out += p.plane)
      for (int64_t m = 0; m < p.pitch; m += lanes) store_f(out + m, vf{});
  }
  // All that the result lines of a task read: lines in order, for what is written behind the end of one belongs to the
  // next.
  static void fill(const Task &t, float *out) {
    const tw_conv_args &x = *t.x;
    const Planes &p = t.p;
    const int64_t *strides = read_strides(x);
    const Axis &d = t.g.axis[0], &h = t.g.axis[1], &w = t.g.axis[2];
    int64_t depth = t.groups * depth_of(x), there = (x.groups - t.group) * depth_of(x);
    bool dense = strides[3] == x.groups * depth_of(x), planes = reads_planes(x);
    const In *data = read_data(x) + t.image * strides[0] + t.group * depth_of(x) * strides[4];
    for (int64_t td = 0; td < d.taps; ++td, out += depth * p.plane) {
      int64_t zd = t.depth * d.step + d.offset + td * d.offset_step;
      if (zd < 0 || zd >= d.size) continue;  // never read
      for (int64_t rh = 0; rh < p.step[0]; ++rh)
        for (int64_t rw = 0; rw < p.step[1]; ++rw)
          for (int64_t line = 0; line < p.height; ++line) {
            float *to = out + (rh * p.step[1] + rw) * p.part + line * p.pitch;
            int64_t zh = (t.first + line) * p.step[0] + rh + p.low[0], z0 = rw + p.low[1];
            if (zh < 0 || zh >= h.size) {
              clear_line(depth, p, to);
              continue;
            }
            int64_t before = z0 < 0 ? least(p.pitch, (-z0 + w.step - 1) / w.step) : 0;
            int64_t end = w.size > z0 ? least(p.pitch, (w.size - z0 + w.step - 1) / w.step) : 0;
            const In *from = data + zd * strides[1] + zh * strides[2] + (z0 + before * w.step) * strides[3];
            if (planes) {
              copy_line(from, w.step, strides[4], before, most(0, end - before), depth, p, to);
              continue;
            }
            int64_t rest = (w.size - z0 - before * w.step) * strides[3] - t.group * depth_of(x);
            turn_line(from, w.step * strides[3], before, most(0, end - before), depth, there, dense ? rest : 0, p, to);
          }
    }
  }

  // ---- results ----------------------------------------------------------------------------------
  // Rows of `some` channels each; a few are stored as such, for masks are slow.
  template <class T>
  static TW_INLINE void store_pixels(T *to, int64_t apart, const vu *rows, int64_t count, int64_t some, bool far) {
    if constexpr (End::whole_lines)
      if (far && some == lanes) {
        for (int64_t e = 0; e < count; ++e, to += apart) End::put(to, vf(rows[e]), true);
        return;
      }
    (void)far;
    if (some > 4) {
      for (int64_t e = 0; e < count; ++e, to += apart) store_words(to, rows[e], some);
      return;
    }
    with_fixed<4>(some, [&](auto n) {
      for (int64_t e = 0; e < count; ++e, to += apart) __builtin_memcpy(to, rows + e, decltype(n)::value * 4);
    });
  }
  // `count` results from place `q` on, line by line, to planes of the user's.
  static TW_INLINE void store_planes(const Task &t, int64_t q, int64_t count, const float *accum) {
    const tw_conv_args &x = *t.x;
    const int64_t columns = t.groups * columns_of(x), wide = t.g.axis[2].count, *strides = End::strides(x);
    int64_t line = q / t.p.pitch, at = q % t.p.pitch;
    for (int64_t i = 0; i < count; i += t.p.pitch - at, at = 0, ++line) {
      int64_t here = least(count - i, wide - at), column = t.group * columns_of(x);
      if (here <= 0) continue;
      Place p{t.image, {t.depth, t.first + line, at}};
      auto *to = End::base(x) + End::offset(t.g, p, strides) + column * strides[4];
      const typename Config::D *d[TW_CONV_MAX_D];
      for (int n = 0; n < Config::num_d; ++n)
        d[n] = static_cast<const typename Config::D *>(x.d[n]) + End::offset(t.g, p, x.d_strides[n]) +
               column * x.d_strides[n][4];
      for (int64_t c = 0; c < columns; ++c, to += strides[4]) {
        for (int64_t e = 0; e < here; e += lanes) {
          vf value = load_f(accum + c * NR + i + e);
          for (int n = 0; n < Config::num_d; ++n) {
            vf other = x.d_strides[n][3] ? load_as_float(d[n] + e, here - e) : splat(to_float(*d[n]));
            value = End::multiplies ? value * other : value + other;
          }
          store_from_float(to + e, activate<Config::epilogue>(value), here - e);
        }
        for (int n = 0; n < Config::num_d; ++n) d[n] += x.d_strides[n][4];
      }
    }
  }
  // `count` results from place `q` of the band on, channels apart by NR; places between lines are nobody's.
  static TW_INLINE void leave(const Task &t, int64_t q, int64_t count, const float *accum, float *transposed) {
    const tw_conv_args &x = *t.x;
    const int64_t columns = t.groups * columns_of(x), wide = t.g.axis[2].count, *strides = End::strides(x);
    int64_t apart = strides[3] * t.g.axis[2].place_step;
    [[maybe_unused]] bool far = End::far(x);
    for (int64_t i = 0; i < count; i += lanes)
      for (int64_t c = 0; c < columns; c += lanes) {
        vu square[lanes];
        for (int j = 0; j < lanes; ++j) square[j] = c + j < columns ? load_u(accum + (c + j) * NR + i) : vu{};
        transpose(square);
        int64_t some = least(lanes, columns - c), column = t.group * columns_of(x) + c;
        int64_t line = (q + i) / t.p.pitch, at = (q + i) % t.p.pitch, live = least(lanes, count - i);
        for (int64_t l = 0; l < live;) {
          int64_t here = least(live - l, wide - at);  // on this line
          Place p{t.image, {t.depth, t.first + line, at}};
          if constexpr (End::plain) {
            store_pixels(End::base(x) + End::offset(t.g, p, strides) + column, apart, square + l, here, some, far);
          } else {
            auto row = End::row(x, t.g, p, column);
            for (int64_t e = 0; e < here; ++e) {
              store_u(transposed, square[l + e]);
              End::store(row, reinterpret_cast<const Sum *>(transposed), some);
              row.to += apart;
              for (int d = 0; d < Config::num_d; ++d) row.d[d] += x.d_strides[d][3] * t.g.axis[2].place_step;
            }
          }
          l += t.p.pitch - at;
          at = 0;
          ++line;
        }
      }
  }
  static void band(const Task &t, float *slot) {
    const tw_conv_args &x = *t.x;
    const Axis &d = t.g.axis[0], &h = t.g.axis[1], &w = t.g.axis[2];
    int64_t depth = depth_of(x), columns = columns_of(x), taps = h.taps * w.taps;
    float *accum = slot, *transposed = accum + up(t.groups * columns, lanes) * NR, *planes = transposed + lanes * lanes;
    auto *places = reinterpret_cast<int64_t *>(planes + up(floats(t.p, t.groups * depth), 2));
    for (int64_t th = 0; th < h.taps; ++th)
      for (int64_t tw = 0; tw < w.taps; ++tw) {
        int64_t u = h.offset + th * h.offset_step - t.p.low[0], v = w.offset + tw * w.offset_step - t.p.low[1];
        places[th * w.taps + tw] = (u % t.p.step[0] * t.p.step[1] + v % t.p.step[1]) * t.p.part +
                                   u / t.p.step[0] * t.p.pitch + v / t.p.step[1];
      }
    if (taps > 0) fill(t, planes);
    int64_t all = (t.lines - 1) * t.p.pitch + w.count;
    for (int64_t q = 0; q < all; q += NR) {
      int64_t count = least(NR, all - q);
      for (int64_t g = 0; g < t.groups; ++g)
        one_group(t, t.weights + (t.group + g) * d.taps * taps * depth * columns, planes + g * depth * t.p.plane + q,
                  places, count, accum + g * columns * NR);
      if (stores_planes(x)) store_planes(t, q, count, accum);
      else leave(t, q, count, accum, transposed);
    }
  }
  static TW_INLINE void one_group(const Task &t, const float *weights, const float *planes, const int64_t *places,
                                  int64_t count, float *accum) {
    const tw_conv_args &x = *t.x;
    const Axis &d = t.g.axis[0];
    int64_t depth = depth_of(x), taps = t.g.axis[1].taps * t.g.axis[2].taps;
    for (int64_t one = 0; one < pieces(x); ++one) {
      int64_t row = piece(x, one), rows = piece(x, one + 1) - row;
      bool first = true;
      for (int64_t td = 0; td < d.taps; ++td, weights += depth * taps * rows) {
        int64_t zd = t.depth * d.step + d.offset + td * d.offset_step;
        if (zd < 0 || zd >= d.size) continue;
        block(rows, (count + lanes - 1) / lanes, planes + td * t.groups * depth * t.p.plane, t.p.plane, depth, places,
              taps, weights, first, accum + row * NR);
        first = false;
      }
      if (first) __builtin_memset(accum + row * NR, 0, size_t(rows * NR) * 4);
    }
  }
  static TW_INLINE void block(int64_t rows, int64_t some, const float *planes, int64_t plane, int64_t depth,
                              const int64_t *places, int64_t taps, const float *weights, bool first, float *out) {
    with_fixed<vectors>(some, [&](auto v) {
      with_fixed<MR>(rows, [&](auto r) {
        planar_block<decltype(r)::value, decltype(v)::value, NR>(planes, plane, depth, places, taps, weights, first,
                                                                 out);
      });
    });
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream)), slot = slot_floats(x, threads);
    int64_t each = depth_of(x) * columns_of(x);
    float *slots = base + weight_floats(x);
    const int64_t parts = shares(work_of(x), double(smallest_share), threads);
    share_out(stream, threads, parts, [&](int64_t, int64_t part) {
      float *at = base;
      int64_t item = 0;
      for (int64_t index = 0; index < classes<way>(x); ++index) {
        Gather g = gather_of<way>(x, index);
        for (int64_t group = 0; group < x.groups; ++group, at += g.taps * each)
          if (item++ % parts == part) pack(x, g, group, at);
      }
    });
    share_out(stream, threads, parts, [&](int64_t worker, int64_t part) {
      const float *at = base;
      for (int64_t index = 0; index < classes<way>(x); ++index) {
        Gather g = gather_of<way>(x, index);
        int64_t all = g.axis[1].count, depths = g.axis[0].count, one = g.taps * each;
        if (g.positions > 0) {
          int64_t lines = band_lines(x, g, threads), bands = (all + lines - 1) / lines;
          int64_t bundle = bundle_of(x), bundles = (x.groups + bundle - 1) / bundle;
          int64_t items = x.batch * depths * bands * bundles;
          for (int64_t i = items * part / parts; i < items * (part + 1) / parts; ++i) {
            int64_t group = i % bundles * bundle, b = i / bundles % bands, rest = i / bundles / bands;
            Task t{&x, g, {}, at, rest / depths, rest % depths, group, least(bundle, x.groups - group), b * all / bands,
                   0};
            t.lines = (b + 1) * all / bands - t.first;
            t.p = planes_of(g, t.lines);
            band(t, slots + worker * slot);
          }
        }
        at += x.groups * one;
      }
      streamed();
    });
    return TW_OK;
  }
};

}  // namespace tw
