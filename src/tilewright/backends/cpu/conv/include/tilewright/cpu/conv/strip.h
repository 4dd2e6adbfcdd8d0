// A strip of the gathered operand, spread out for vectors along the channels of the result: depthwise convolutions, and
// groups too small to fill a vector.
//
// Lane l of vector v is channel v * lanes + l of the result; it accumulates over the `depth` channels of its group.  A line of
// a strip is, for each of these, the lines' pixels as vectors whose lanes are what each result channel reads: so every
// product is one vector times one vector, whatever the group's size.  Pixels that one result line reads for the same
// tap lie side by side (strides are taken apart by residue), padding is there as zeros, and elements are fp32.
#pragma once
#include <tilewright/cpu/conv/geometry.h>
#include <tilewright/cpu/conv/slide.h>
#include <tilewright/cpu/copies/pack.h>

namespace tw {

// Lanes of x by index; what an index outside gives does not matter.
TW_INLINE vf permute(vf x, vi index) {
#if defined(__AVX512F__) || defined(__AVX2__)
  vf y;
  asm("vpermps %1, %2, %0" : "=v"(y) : "v"(x), "v"(index));
  return y;
#else
  vf y;
  for (int i = 0; i < lanes; ++i) y[i] = x[index[i] & (lanes - 1)];
  return y;
#endif
}

template <class T> TW_INLINE vf load_wide(const T *p) {
  if constexpr (same<T, int8>::value) return __builtin_convertvector(vi(widen_bytes(p) << 24) >> 24, vf);
  else return load_as_float(p);
}
template <class T> TW_INLINE vf load_wide(const T *p, int64_t count) {
  if (count >= lanes) return load_wide(p);
  T part[lanes];
  __builtin_memset(part, 0, sizeof part);
  for (int i = 0; i < lanes - 1 && i < count; ++i) part[i] = p[i];
  return load_wide(static_cast<const T *>(part));
}
TW_INLINE vf load_wide(const float *p, int64_t count) { return load_as_float(p, count); }

// Sizes of a strip's lines.
struct Strip {
  int64_t depth, group_columns;                         // channels of a group that are summed over, and that come out
  int64_t channels, columns;                            // the same of all groups
  int64_t low[TW_CONV_SPATIAL], span[TW_CONV_SPATIAL];  // first position read for result 0; positions for one result
  int64_t plane, used;                                  // vectors of one channel and residue; how many are read
  int64_t ring;                                         // lines of a ring: a power of two
  int64_t line;                                         // floats of a line
};

template <ConvVariant Way> TW_INLINE Strip strip_of(const tw_conv_args &x, const Gather &g, int64_t slack) {
  Strip s{};
  s.depth = Way == ConvVariant::backward_data ? x.filters : x.channels;
  s.group_columns = Way == ConvVariant::backward_data ? x.channels : x.filters;
  s.channels = s.depth * x.groups;
  s.columns = s.group_columns * x.groups;
  for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis) {
    const Axis &a = g.axis[axis];
    int64_t reach = (most(1, a.taps) - 1) * a.offset_step;
    s.low[axis] = a.offset + least(0, reach);
    s.span[axis] = (reach < 0 ? -reach : reach) + 1;
  }
  const Axis &w = g.axis[2];
  s.used = ((w.count - 1) * w.step + s.span[2] + w.step - 1) / w.step;
  s.plane = s.used + slack;
  for (s.ring = 1; s.ring < s.span[1];) s.ring *= 2;
  s.line = s.depth * w.step * s.plane * lanes;
  return s;
}

// Which channels the lanes of one vector read.
struct LaneMap {
  int64_t base, reach;  // the first channel, and how many from there on
  bool plain;           // lane l reads channel base + l
  vi index;             // of channel 0 of each lane's group, from base
};
TW_INLINE LaneMap lane_map(const Strip &s, int64_t vector) {
  LaneMap m{};
  int64_t first = vector * lanes, last = least(first + lanes, s.columns) - 1;
  m.base = first / s.group_columns * s.depth;
  m.reach = (last / s.group_columns + 1) * s.depth - m.base;
  m.plain = s.depth == 1 && s.group_columns == 1;
  for (int i = 0; i < lanes; ++i) m.index[i] = int32_t(least(first + i, last) / s.group_columns * s.depth - m.base);
  return m;
}

// One pixel's channels, channel c of each group to out + c * apart.
template <class T> TW_INLINE void spread(const Strip &s, const LaneMap &m, const T *from, float *out, int64_t apart) {
  if (m.plain) {
    store_f(out, load_wide(from, m.reach));
    return;
  }
  if (m.reach <= lanes) {
    vf x = load_wide(from, m.reach);
    for (int64_t c = 0; c < s.depth; ++c) store_f(out + c * apart, permute(x, m.index + int32_t(c)));
    return;
  }
  for (int64_t c = 0; c < s.depth; ++c) {
    vf y{};
    vi index = m.index + int32_t(c);
    for (int64_t part = 0; part < m.reach; part += lanes, index -= int32_t(lanes)) {
      vf x = permute(load_wide(from + part, m.reach - part), index);
      y = select(vi((index >= 0) & (index < lanes)), x, y);
    }
    store_f(out + c * apart, y);
  }
}

// A line of the operand, from its first pixel on (`from`, at the map's base), `step` elements apart.
template <class T>
TW_INLINE void spread_line(const Strip &s, const LaneMap &m, const Axis &w, const T *from, int64_t step, float *out) {
  int64_t low = s.low[2], every = w.step, apart = every * s.plane * lanes;
  // Positions u = residue + every * i, those of one residue side by side.
  for (int64_t residue = 0; residue < every; ++residue, out += s.plane * lanes) {
    int64_t z = residue + low;  // the pixel of i = 0
    int64_t begin = z < 0 ? -z : 0, end = w.size - z;
    if (every > 1) {
      begin = (begin + every - 1) / every;
      end = end > 0 ? (end + every - 1) / every : 0;
    }
    begin = least(s.used, begin);
    end = most(begin, least(s.used, end));
    for (int64_t c = 0; c < s.depth; ++c) {
      for (int64_t i = 0; i < begin; ++i) store_f(out + i * lanes + c * apart, vf{});
      for (int64_t i = end; i < s.used; ++i) store_f(out + i * lanes + c * apart, vf{});
    }
    const T *at = from + (z + begin * every) * step;
    float *to = out + begin * lanes;
    if (m.plain && m.reach == lanes)
      for (int64_t i = begin; i < end; ++i, at += every * step, to += lanes) store_f(to, load_wide(at));
    else
      for (int64_t i = begin; i < end; ++i, at += every * step, to += lanes) spread(s, m, at, to, apart);
  }
}

// Where taps of the width and channels lie in a line, relative to the vector of result 0.
TW_INLINE void line_offsets(const Strip &s, const Axis &w, int64_t *offsets) {
  for (int64_t t = 0; t < w.taps; ++t)
    for (int64_t c = 0; c < s.depth; ++c) {
      int64_t u = w.offset + t * w.offset_step - s.low[2];
      *offsets++ = ((c * w.step + u % w.step) * s.plane + u / w.step) * lanes;
    }
}

// The lines that result lines need, in rings: for each of some vectors of channels, one for each tap of the depth.
// Vectors go together so that a line of the operand is read once, while it is near.
template <class T> struct Rings {
  const Strip *s;
  const Gather *g;
  const T *image;          // of the operand
  const int64_t *strides;  // its strides
  LaneMap *maps;
  float *lines;
  int64_t vectors;
  int64_t next;  // the first height not yet there

  // Room for that many, in floats.
  static TW_INLINE int64_t one(const Strip &s, const Gather &g) { return most(1, g.axis[0].taps) * s.ring * s.line; }
  static TW_INLINE int64_t floats(const Strip &s, const Gather &g, int64_t vectors) {
    return vectors * (one(s, g) + int64_t(sizeof(LaneMap) / 4));
  }
  // How many vectors should go together: what a second-level cache holds beside other things.
  static TW_INLINE int64_t together(const Strip &s, const Gather &g, int64_t all) {
    constexpr int64_t enough = 64 << 10;  // floats
    return most(1, least((all + 1) / 2, enough / most(1, one(s, g))));
  }
  TW_INLINE void place(float *room, int64_t first, int64_t count) {
    maps = reinterpret_cast<LaneMap *>(room);
    lines = room + count * int64_t(sizeof(LaneMap) / 4);
    vectors = count;
    for (int64_t v = 0; v < count; ++v) maps[v] = lane_map(*s, first + v);
  }
  TW_INLINE float *base(int64_t vector) const { return lines + vector * one(*s, *g); }
  TW_INLINE int64_t line(int64_t depth_tap, int64_t height) const {
    return (depth_tap * s->ring + (height & (s->ring - 1))) * s->line;
  }
  TW_INLINE void start(int64_t result_height) { next = result_height * g->axis[1].step + s->low[1]; }
  // Everything that result line (depth, height) reads.
  TW_INLINE void fill(int64_t depth, int64_t height) {
    const Axis &d = g->axis[0], &h = g->axis[1];
    int64_t end = height * h.step + s->low[1] + s->span[1];
    next = most(next, end - s->span[1]);
    for (; next < end; ++next)
      for (int64_t t = 0; t < d.taps; ++t) {
        int64_t z = depth * d.step + d.offset + t * d.offset_step;
        if (z < 0 || z >= d.size || next < 0 || next >= h.size) continue;
        const T *from = image + z * strides[1] + next * strides[2];
        for (int64_t v = 0; v < vectors; ++v)
          spread_line(*s, maps[v], g->axis[2], from + maps[v].base, strides[3], base(v) + line(t, next));
      }
  }
};

// The rows of the window that lie inside for result line (depth, height); `line(tap of the depth, depth, height)` says
// where a line of the operand begins.
template <class Line>
TW_INLINE int64_t window_rows(const Gather &g, int64_t depth, int64_t height, WindowRow *rows, const Line &line) {
  const Axis &d = g.axis[0], &h = g.axis[1];
  int64_t number = 0;
  for (int64_t a = 0; a < d.taps; ++a)
    for (int64_t b = 0; b < h.taps; ++b) {
      int64_t zd = depth * d.step + d.offset + a * d.offset_step;
      int64_t zh = height * h.step + h.offset + b * h.offset_step;
      if (zd < 0 || zd >= d.size || zh < 0 || zh >= h.size) continue;
      rows[number++] = {line(a, zd, zh), a * h.taps + b};
    }
  return number;
}
template <class T>
TW_INLINE int64_t window_rows(const Rings<T> &rings, int64_t depth, int64_t height, WindowRow *rows) {
  return window_rows(*rings.g, depth, height, rows,
                     [&](int64_t tap, int64_t, int64_t at) { return rings.line(tap, at); });
}

}  // namespace tw
