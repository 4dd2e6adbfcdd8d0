// Where a convolution reads and writes.  Forward and backward-data are one thing here: every position of the result
// gathers from positions of an operand, tap by tap.
//
//   forward        result position o reads o * stride - before + t * dilation, for each t of the window
//   backward_data  result position i is read by outputs (i + before - t * dilation) / stride where that is whole.
//                  Positions i = r + stride * j of one residue r have the same taps, and read j + a constant for each.
//
// So a backward-data problem is a sum of `classes`, one for each residue of each axis, and each looks like a forward
// one with stride 1.  Nothing is scattered: a result is written once, by whoever gathers for it.
#pragma once
#include <tilewright/conv_rules.h>

#include <tilewright/cpu/primitives/activation.h>
#include <tilewright/cpu/primitives/convert.h>

namespace tw {

TW_INLINE int64_t common_divisor(int64_t x, int64_t y) {
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}

// One axis of a gather: result position j reads j * step + offset + t * offset_step for its tap t, which is tap
// `tap + t * tap_step` of the window, and lies at place + j * place_step of the result.
struct Axis {
  int64_t count, step;
  int64_t size;  // of what is read
  int64_t taps, tap, tap_step, offset, offset_step;
  int64_t place, place_step;
};

template <ConvVariant Way> TW_INLINE Axis axis_of(const tw_conv_args &x, int axis, int64_t residue) {
  int64_t stride = x.stride[axis], dilation = x.dilation[axis], before = x.before[axis], window = x.window[axis];
  Axis a{};
  if constexpr (Way == ConvVariant::forward) {
    a.count = x.out[axis];
    a.step = a.count > 1 ? stride : 1;  // between one result and no other there is no stride
    a.size = x.size[axis];
    a.taps = window;
    a.tap_step = 1;
    a.offset = -before;
    a.offset_step = dilation;
    a.place_step = 1;
  } else {
    a.count = residue < x.size[axis] ? (x.size[axis] - residue + stride - 1) / stride : 0;
    a.step = 1;
    a.size = x.out[axis];
    int64_t common = common_divisor(stride, dilation), apart = stride / common, first = 0;
    while (first < apart && first < window && (residue + before - first * dilation) % stride) ++first;
    a.tap = first;
    a.tap_step = apart;
    a.taps = first < apart && first < window ? (window - first + apart - 1) / apart : 0;
    a.offset = a.taps ? (residue + before - first * dilation) / stride : 0;
    a.offset_step = -dilation / common;
    a.place = residue;
    a.place_step = stride;
  }
  return a;
}

// A forward problem, or one class of a backward-data problem.
struct Gather {
  Axis axis[TW_CONV_SPATIAL];
  int64_t positions, taps;  // of the results of one group, all images; of the window
};

// Residues of an axis that some pixel has.
TW_INLINE int64_t residues(const tw_conv_args &x, int axis) {
  return x.stride[axis] < x.size[axis] ? x.stride[axis] : x.size[axis];
}
template <ConvVariant Way> TW_INLINE int64_t classes(const tw_conv_args &x) {
  return Way == ConvVariant::forward ? 1 : residues(x, 0) * residues(x, 1) * residues(x, 2);
}
template <ConvVariant Way> TW_INLINE Gather gather_of(const tw_conv_args &x, int64_t index) {
  Gather g{};
  g.positions = x.batch;
  g.taps = 1;
  for (int axis = TW_CONV_SPATIAL - 1; axis >= 0; --axis) {
    g.axis[axis] = axis_of<Way>(x, axis, index % residues(x, axis));
    if (Way != ConvVariant::forward) index /= residues(x, axis);
    g.positions *= g.axis[axis].count;
    g.taps *= g.axis[axis].taps;
  }
  return g;
}

// A result position as image, depth, height, width, counted on one by one.
struct Place {
  int64_t image, at[TW_CONV_SPATIAL];
};
TW_INLINE Place place_of(const Gather &g, int64_t position) {
  Place p;
  for (int axis = TW_CONV_SPATIAL - 1; axis >= 0; --axis) {
    p.at[axis] = position % g.axis[axis].count;
    position /= g.axis[axis].count;
  }
  p.image = position;
  return p;
}
TW_INLINE void next(const Gather &g, Place &p) {
  for (int axis = TW_CONV_SPATIAL - 1; axis >= 0; --axis) {
    if (++p.at[axis] < g.axis[axis].count) return;
    p.at[axis] = 0;
  }
  ++p.image;
}

// `count` elements widened to fp32; nothing is read or written behind them.
template <class T> TW_INLINE void widen_run(const T *from, int64_t count, float *to) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_f(to + i, load_as_float(from + i));
  if (i == count) return;
  if (count >= lanes) store_f(to + count - lanes, load_as_float(from + count - lanes));
  else
    for (; i < count; ++i) to[i] = to_float(from[i]);
}

// The epilogue of a row of accumulators: the D tensors, the activation, the output type.
template <class Config> struct ConvFinish {
  using Out = typename Config::C;
  using D = typename Config::D;
  using Sum = accumulator<typename Config::A>;
  static constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
  static constexpr bool fused = Config::epilogue != Epilogue::PassThrough || Config::num_d > 0;
  static constexpr bool plain = same<Sum, Out>::value && !fused;  // the accumulators are the result, bit for bit
  static constexpr bool only_rounded =
      rounds_in_registers<Out> && same<Sum, float>::value && !fused;  // but for its type

  static TW_INLINE Out *base(const tw_conv_args &x) {
    return static_cast<Out *>(Config::variant == ConvVariant::forward ? x.y : x.x);
  }
  static TW_INLINE const int64_t *strides(const tw_conv_args &x) {
    return Config::variant == ConvVariant::forward ? x.y_strides : x.x_strides;
  }
  static TW_INLINE int64_t offset(const Gather &g, const Place &p, const int64_t *strides) {
    int64_t at = p.image * strides[0];
    for (int axis = 0; axis < TW_CONV_SPATIAL; ++axis)
      at += (g.axis[axis].place + p.at[axis] * g.axis[axis].place_step) * strides[axis + 1];
    return at;
  }

  // Whether results are so many that caches have lost them before anybody reads them.
  static constexpr bool whole_lines = streams && same<Out, float>::value;
  static constexpr int64_t far_bytes = 4 << 20;
  static TW_INLINE bool far(const tw_conv_args &x) {
    if constexpr (!whole_lines) return false;
    const bool forward = Config::variant == ConvVariant::forward;
    // Where a pixel ends within a line, lines would be written half past the caches and half into them: twice the time.
    if (strides(x)[3] * 4 % vector_bytes) return false;
    return x.batch * x.groups * (forward ? x.filters * pixels(x.out) : x.channels * pixels(x.size)) * 4 >= far_bytes;
  }
  // A vector of results: past the caches where it is a line of theirs.
  static TW_INLINE void put(float *to, vf value, bool far) {
    if (whole_lines && far && reinterpret_cast<uintptr_t>(to) % vector_bytes == 0) stream_f(to, value);
    else store_f(to, value);
  }

  struct Row {
    Out *to;
    bool far;
    const D *d[TW_CONV_MAX_D];
    int64_t d_step[TW_CONV_MAX_D];
  };
  static TW_INLINE Row row(const tw_conv_args &x, const Gather &g, const Place &p, int64_t column) {
    Row r{};
    r.to = base(x) + offset(g, p, strides(x)) + column;
    r.far = far(x);
    for (int t = 0; t < Config::num_d; ++t) {
      r.d_step[t] = x.d_strides[t][TW_CONV_SPATIAL + 1];
      r.d[t] = static_cast<const D *>(x.d[t]) + offset(g, p, x.d_strides[t]) + column * r.d_step[t];
    }
    return r;
  }

  // `count` accumulators, padded to whole vectors, to a row of the result.
  static TW_INLINE void store(const Row &r, const Sum *accum, int64_t count) {
    if constexpr (is_int<Sum>) {
      for (int64_t j = 0; j < count; ++j) {
        if constexpr (!fused && is_int<Out>) {
          int32_t s = accum[j];
          if constexpr (same<Out, int8>::value) s = s < -128 ? -128 : s > 127 ? 127 : s;
          r.to[j] = Out(s);
          continue;
        }
        double value = double(accum[j]);
        for (int t = 0; t < Config::num_d; ++t) {
          double d = double(r.d[t][j * r.d_step[t]]);
          value = multiplies ? value * d : value + d;
        }
        from_double(activate_one<Config::epilogue>(value), r.to + j);
      }
    } else {
      for (int64_t j = 0; j < count; j += lanes) {
        int64_t left = count - j;
        vf value = load_f(accum + j);
        for (int t = 0; t < Config::num_d; ++t) {
          vf d = r.d_step[t] ? load_as_float(r.d[t] + j, left) : splat(to_float(*r.d[t]));
          value = multiplies ? value * d : value + d;
        }
        value = activate<Config::epilogue>(value);
        if constexpr (whole_lines)
          if (left >= lanes) {
            put(r.to + j, value, r.far);
            continue;
          }
        store_from_float(r.to + j, value, left);
      }
    }
  }
};

}  // namespace tw
