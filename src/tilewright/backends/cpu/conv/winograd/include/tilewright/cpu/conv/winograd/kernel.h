// Winograd's minimal filtering, F(M x M, 3 x 3): windows of 3 x 3 with stride 1 in height and width, any dilation.
//
// M x M results need (M + 2)^2 products instead of 9 M^2, after linear transforms of inputs, weights and results:
// (M + 2)^2 matrix products, tiles by channels of the result, over channels (and taps of the depth).  Transforms add
// rounding errors that a sum of products does not have; ops/conv/reference.py has the error bound.
//
// Weights are transformed once a call.  A block of tiles is transformed, multiplied and transformed back by one thread
// while it lies in its cache.
#pragma once
#include <tilewright/cpu/conv/gathered_block.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

// The transforms of one axis: M results of 3 taps from M + 2 inputs.
template <int M> struct Minimal;
template <> struct Minimal<2> {  // points 0, 1, -1
  static TW_INLINE void input(vf (&d)[4]) {
    vf d1 = d[1], d2 = d[2];
    d[0] = d[0] - d2;
    d[1] = d1 + d2;
    d[2] = d2 - d1;
    d[3] = d1 - d[3];
  }
  static TW_INLINE void weight(vf g0, vf g1, vf g2, vf (&u)[4]) {
    vf even = 0.5f * (g0 + g2), odd = 0.5f * g1;
    u[0] = g0;
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = g2;
  }
  static TW_INLINE void output(const vf (&m)[4], vf (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }
};
template <> struct Minimal<4> {  // points 0, 1, -1, 2, -2
  static TW_INLINE void input(vf (&d)[6]) {
    vf a = d[4] - 4.0f * d[2], b = d[3] - 4.0f * d[1], c = d[4] - d[2], e = 2.0f * (d[3] - d[1]);
    d[0] = 4.0f * d[0] + (d[4] - 5.0f * d[2]);
    d[5] = 4.0f * d[1] + (d[5] - 5.0f * d[3]);
    d[1] = a + b;
    d[2] = a - b;
    d[3] = c + e;
    d[4] = c - e;
  }
  static TW_INLINE void weight(vf g0, vf g1, vf g2, vf (&u)[6]) {
    vf a = (-1.0f / 6) * (g0 + g2), b = (-1.0f / 6) * g1, c = (1.0f / 24) * g0 + (1.0f / 6) * g2, e = (1.0f / 12) * g1;
    u[0] = 0.25f * g0;
    u[1] = a + b;
    u[2] = a - b;
    u[3] = c + e;
    u[4] = c - e;
    u[5] = g2;
  }
  static TW_INLINE void output(const vf (&m)[6], vf (&y)[4]) {
    vf s1 = m[1] + m[2], s2 = m[1] - m[2], s3 = m[3] + m[4], s4 = m[3] - m[4];
    y[0] = m[0] + s1 + s3;
    y[1] = s2 + 2.0f * s4;
    y[2] = s1 + 4.0f * s3;
    y[3] = s2 + 8.0f * s4 + m[5];
  }
};

template <class Config> struct ConvWinograd {
  using A = typename Config::A;
  using D = DotFloat<A, A>;
  using End = ConvFinish<Config>;
  static constexpr ConvVariant way = Config::variant;
  static constexpr int M = Config::results, side = M + 2, points = side * side;
  static constexpr int MR = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr int MC = Config::tile_m, NC = Config::tile_n;  // tiles and channels of a block
  static constexpr int64_t smallest_share = selection::kSmallestShare;
  static constexpr int some = 16;  // channels whose weights are transformed at a time
  static_assert(NR % lanes == 0 && MC % MR == 0 && NC % NR == 0, "tiles do not divide");

  // ---- sizes -------------------------------------------------------------------------------
  struct Shape {
    Bundle b;
    int64_t panels;      // of a group
    int64_t taps;        // of the depth
    int64_t line;        // floats of one tile, point and tap: channels, padded
    int64_t high, wide;  // tiles of a slice
    int64_t tiles;       // of all slices
    int64_t low[TW_CONV_SPATIAL], dilation[TW_CONV_SPATIAL];
  };
  // Tiles along an axis: those of one residue of the dilation after those of another.
  static TW_INLINE int64_t along(int64_t count, int64_t dilation) {
    int64_t tiles = 0;
    for (int64_t r = 0; r < dilation && r < count; ++r) tiles += ((count - r + dilation - 1) / dilation + M - 1) / M;
    return tiles;
  }
  static TW_INLINE int64_t start_of(int64_t index, int64_t count, int64_t dilation) {
    for (int64_t r = 0;; ++r) {
      int64_t tiles = ((count - r + dilation - 1) / dilation + M - 1) / M;
      if (index < tiles) return r + index * M * dilation;
      index -= tiles;
    }
  }
  static TW_INLINE Shape shape(const tw_conv_args &x, const Gather &g) {
    Shape s{};
    s.b = bundle_of<D, way>(x, 1);
    s.panels = (s.b.columns + NR - 1) / NR;
    s.taps = g.axis[0].taps;
    s.line = up(s.b.depth, lanes);
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis) {
      const Axis &a = g.axis[axis];
      s.dilation[axis] = a.offset_step < 0 ? -a.offset_step : a.offset_step;
      s.low[axis] = a.offset + least(0, 2 * a.offset_step);  // of height and width, where there are 3 taps
    }
    s.high = along(g.axis[1].count, s.dilation[1]);
    s.wide = along(g.axis[2].count, s.dilation[2]);
    s.tiles = x.batch * g.axis[0].count * s.high * s.wide;
    return s;
  }
  static TW_INLINE int64_t row_floats(const Shape &s) { return s.taps * s.line + lanes; }
  static TW_INLINE int64_t weight_floats(const tw_conv_args &x, const Shape &s) {
    return x.groups * s.panels * points * s.taps * s.b.depth * NR;
  }
  static TW_INLINE int64_t slot_floats(const Shape &s) {
    int64_t floats = points * MC * row_floats(s);           // transformed inputs
    floats += points * MC * int64_t(NC) + MC * s.taps * 2;  // products, pointers
    floats += MC * int64_t(sizeof(Tile) / 4);               // tiles
    floats = most(floats, 9 * some * NR);                   // weights on their way have it before
    return up(floats, 16);
  }
  // Backward, the depth may have strides: classes, which share nothing but the room.
  template <class Body> static TW_INLINE void each_class(const tw_conv_args &x, const Body &body) {
    for (int64_t index = 0; index < classes<way>(x); ++index) {
      Gather g = gather_of<way>(x, index);
      if (g.positions > 0) body(g, shape(x, g));
    }
  }
  static int64_t workspace(const tw_conv_args &x, int64_t threads) {
    int64_t weights = 0, slot = 0;
    each_class(x, [&](const Gather &, const Shape &s) {
      weights = most(weights, weight_floats(x, s));
      slot = most(slot, slot_floats(s));
    });
    return (up(weights, 16) + slot * useful(x, threads)) * 4 + 64;
  }
  static TW_INLINE int64_t useful(const tw_conv_args &x, int64_t threads) {
    double work =
        double(x.batch) * double(pixels(x.out)) * double(x.groups * x.filters) * double(x.channels * pixels(x.window));
    double most_threads = work / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }

  // ---- weights --------------------------------------------------------------------------------
  // weights[group][panel][point][tap of the depth][channel][NR]
  static void transform_weights(const tw_conv_args &x, const Gather &g, const Shape &s, int64_t group, int64_t panel,
                                float *out, float *room) {
    const Axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    int64_t apart = s.taps * s.b.depth * NR;  // from one point to the next
    for (int64_t t = 0; t < s.taps; ++t)
      for (int64_t c = 0; c < s.b.depth; c += some) {
        int64_t count = least(some, s.b.depth - c);
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t j = 0; j < 3; ++j) {
            int64_t th = h.offset_step < 0 ? 2 - i : i, tw = w.offset_step < 0 ? 2 - j : j;
            int64_t offset = (d.tap + t * d.tap_step) * x.w_strides[1] + th * x.w_strides[2] + tw * x.w_strides[3];
            TapPacker<D, way, vectors>::template tap<A>(x, s.b, group, offset, panel * NR, c, count,
                                                        reinterpret_cast<uint32_t *>(room) + (i * 3 + j) * some * NR,
                                                        nullptr);
          }
        float *to = out + (t * s.b.depth + c) * NR;
        for (int64_t at = 0; at < count * NR; at += lanes) one_weight(room + at, to + at, apart);
      }
  }
  static TW_INLINE void one_weight(const float *taps, float *to, int64_t apart) {
    vf columns[side][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      vf u[side];
      Minimal<M>::weight(load_f(taps + j * some * NR), load_f(taps + (3 + j) * some * NR),
                         load_f(taps + (6 + j) * some * NR), u);
#pragma GCC unroll 6
      for (int i = 0; i < side; ++i) columns[i][j] = u[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < side; ++i) {
      vf u[side];
      Minimal<M>::weight(columns[i][0], columns[i][1], columns[i][2], u);
#pragma GCC unroll 6
      for (int j = 0; j < side; ++j) store_f(to + (i * side + j) * apart, u[j]);
    }
  }

  // ---- a tile ---------------------------------------------------------------------------------
  struct Tile {
    int64_t image, depth, height, width;  // its first result
  };
  static TW_INLINE Tile tile_of(const Gather &g, const Shape &s, int64_t index) {
    Tile t;
    t.width = start_of(index % s.wide, g.axis[2].count, s.dilation[2]);
    index /= s.wide;
    t.height = start_of(index % s.high, g.axis[1].count, s.dilation[1]);
    index /= s.high;
    t.depth = index % g.axis[0].count;
    t.image = index / g.axis[0].count;
    return t;
  }
  // Its inputs, transformed, for every tap of the depth: out[point * apart + tap * line + channel].
  static void transform_inputs(const tw_conv_args &x, const Gather &g, const Shape &s, const Tile &tile, int64_t group,
                               float *out, int64_t apart) {
    const int64_t *strides = Gathered<way>::strides(x);
    const A *image = static_cast<const A *>(Gathered<way>::data(x)) + tile.image * strides[0] + group * s.b.depth;
    const A *at[points];
    const Axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    for (int64_t t = 0; t < s.taps; ++t, out += s.line) {
      int64_t z = tile.depth * d.step + d.offset + t * d.offset_step;
      if (z < 0 || z >= d.size) {
        for (int i = 0; i < points; ++i) __builtin_memset(out + i * apart, 0, size_t(s.b.depth) * 4);
        continue;
      }
      bool whole = true;
      for (int i = 0; i < side; ++i)
        for (int j = 0; j < side; ++j) {
          int64_t zh = tile.height + s.low[1] + i * s.dilation[1], zw = tile.width + s.low[2] + j * s.dilation[2];
          bool inside = zh >= 0 && zh < h.size && zw >= 0 && zw < w.size;
          at[i * side + j] = inside ? image + z * strides[1] + zh * strides[2] + zw * strides[3] : nullptr;
          whole = whole && inside;
        }
      int64_t c = 0;
      if (whole)
        for (; c + lanes <= s.b.depth; c += lanes)
          one_input([&](int i) { return load_as_float(at[i] + c); }, out + c, apart);
      for (; c < s.b.depth; c += lanes)
        one_input([&](int i) { return at[i] ? load_as_float(at[i] + c, s.b.depth - c) : vf{}; }, out + c, apart);
    }
  }
  template <class Load> static TW_INLINE void one_input(const Load &load, float *out, int64_t apart) {
    vf square[side][side];
#pragma GCC unroll 6
    for (int j = 0; j < side; ++j) {
      vf line[side];
#pragma GCC unroll 6
      for (int i = 0; i < side; ++i) line[i] = load(i * side + j);
      Minimal<M>::input(line);
#pragma GCC unroll 6
      for (int i = 0; i < side; ++i) square[i][j] = line[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < side; ++i) {
      Minimal<M>::input(square[i]);
#pragma GCC unroll 6
      for (int j = 0; j < side; ++j) store_f(out + (i * side + j) * apart, square[i][j]);
    }
  }
  // Its products, transformed back, to the result: columns [column, column + count) of the group's.
  static void transform_outputs(const tw_conv_args &x, const Gather &g, const Shape &s, const Tile &tile,
                                int64_t column, int64_t count, const float *from, int64_t apart) {
    Place first{tile.image, {tile.depth, tile.height, tile.width}};
    [[maybe_unused]] auto *to = End::base(x) + End::offset(g, first, End::strides(x)) + column;
    [[maybe_unused]] const bool far = End::far(x);
    [[maybe_unused]] int64_t down = End::strides(x)[2] * s.dilation[1], right = End::strides(x)[3] * s.dilation[2];
    for (int64_t c = 0; c < count; c += lanes) {
      vf rows[M][side], y[M][M];
#pragma GCC unroll 6
      for (int j = 0; j < side; ++j) {
        vf line[side], out[M];
#pragma GCC unroll 6
        for (int i = 0; i < side; ++i) line[i] = load_f(from + (i * side + j) * apart + c);
        Minimal<M>::output(line, out);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) rows[i][j] = out[i];
      }
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) Minimal<M>::output(rows[i], y[i]);
      int64_t left = least(lanes, count - c);
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < M; ++j) {
          int64_t h = tile.height + i * s.dilation[1], w = tile.width + j * s.dilation[2];
          if (h >= g.axis[1].count || w >= g.axis[2].count) continue;
          if constexpr (End::plain) {
            auto *there = to + i * down + j * right + c;
            if (End::whole_lines && left == lanes) End::put(there, y[i][j], far);
            else store_from_float(there, y[i][j], left);
            continue;
          }
          float row[lanes];
          store_f(row, y[i][j]);
          End::store(End::row(x, g, Place{tile.image, {tile.depth, h, w}}, column + c), row, left);
        }
    }
  }

  // ---- a block of tiles, all or some channels of the result of one group -----------------------
  struct Room {
    float *inputs, *products;
    const char **rows;  // [tile / MR][tap][MR]: where the inputs of point 0 are
    Tile *tiles;
  };
  static TW_INLINE Room room_of(const Shape &s, float *slot) {
    Room r{slot, slot + points * MC * row_floats(s), nullptr, nullptr};
    r.rows = reinterpret_cast<const char **>(r.products + points * MC * int64_t(NC));
    r.tiles = reinterpret_cast<Tile *>(r.rows + MC * s.taps);
    return r;
  }
  static void block(const tw_conv_args &x, const Gather &g, const Shape &s, int64_t group, int64_t first, int64_t count,
                    int64_t n0, int64_t n1, const float *weights, float *slot) {
    int64_t row = row_floats(s), apart = MC * row;
    Room room = room_of(s, slot);
    for (int64_t i = 0; i < up(count, MR); ++i)  // what is left over of a register block repeats the last
      for (int64_t t = 0; t < s.taps; ++t)
        room.rows[(i / MR * s.taps + t) * MR + i % MR] =
            reinterpret_cast<const char *>(room.inputs + least(i, count - 1) * row + t * s.line);
    for (int64_t i = 0; i < count; ++i) {
      room.tiles[i] = tile_of(g, s, first + i);
      transform_inputs(x, g, s, room.tiles[i], group, room.inputs + i * row, apart);
    }
    for (int64_t n = n0; n < n1; n += NC / NR) {
      int64_t end = least(n1, n + NC / NR), column = n * NR;
      for (int point = 0; point < points; ++point)
        multiply(s, count, room, point, weights + n * points * s.taps * s.b.depth * NR, end - n);
      for (int64_t i = 0; i < count; ++i)
        transform_outputs(x, g, s, room.tiles[i], group * s.b.columns + column,
                          least((end - n) * NR, s.b.columns - column), room.products + i * NC, MC * int64_t(NC));
    }
  }
  // The products of one point: tiles by channels.
  static TW_INLINE void multiply(const Shape &s, int64_t count, const Room &room, int point, const float *weights,
                                 int64_t panels) {
    int64_t shift = point * MC * row_floats(s) * 4, each = s.taps * s.b.depth * NR;
    float *products = room.products + point * MC * int64_t(NC);
    for (int64_t n = 0; n < panels; ++n) {
      auto *panel = reinterpret_cast<const uint32_t *>(weights + (n * points + point) * each);
      for (int64_t i = 0; i < count; i += MR) {
        const char *const *rows = room.rows + i * s.taps;
        auto *out = reinterpret_cast<uint32_t *>(products + i * NC + n * NR);
        constexpr int half = MR / 2 > 0 ? MR / 2 : 1;
        if (count - i <= half)
          gathered_block<D, half, MR, vectors, false>(s.taps, s.b.depth, rows, nullptr, shift, panel, nullptr, nullptr,
                                                      out, NC);
        else
          gathered_block<D, MR, MR, vectors, false>(s.taps, s.b.depth, rows, nullptr, shift, panel, nullptr, nullptr,
                                                    out, NC);
      }
    }
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static int launch(const tw_conv_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream));
    each_class(x, [&](const Gather &g, const Shape &s) { one_class(x, g, s, base, stream, threads); });
    return TW_OK;
  }
  static void one_class(const tw_conv_args &x, const Gather &g, const Shape &s, float *base, void *stream,
                        int64_t threads) {
    float *weights = base, *slots = weights + up(weight_floats(x, s), 16);
    int64_t slot = slot_floats(s), each = points * s.taps * s.b.depth * NR;
    share_out(stream, threads, x.groups * s.panels, [&](int64_t worker, int64_t panel) {
      transform_weights(x, g, s, panel / s.panels, panel % s.panels, weights + panel * each, slots + worker * slot);
    });
    // Blocks of even size; where they are too few for the team, each is done in parts of the channels.
    int64_t blocks = (s.tiles + MC - 1) / MC, cut = 1;
    if (blocks * x.groups < 4 * threads) {
      int64_t wanted = up(blocks, threads);
      if (s.tiles >= 2 * MR * wanted) blocks = wanted;
      else if (blocks * x.groups % threads) cut = least(threads, s.panels);
    }
    int64_t panels = (s.panels + cut - 1) / cut;
    share_out(stream, threads, x.groups * blocks * cut, [&](int64_t worker, int64_t item) {
      int64_t part = item % cut, b = item / cut % blocks, group = item / cut / blocks;
      int64_t first = b * s.tiles / blocks, last = (b + 1) * s.tiles / blocks, n0 = least(s.panels, part * panels);
      block(x, g, s, group, first, last - first, n0, least(s.panels, n0 + panels), weights + group * s.panels * each,
            slots + worker * slot);
      streamed();
    });
  }
};

}  // namespace tw
