// Register blocks of depthwise backward-weight that read both operands where they lie: rows of the window by its taps
// along the width, one vector of channels, whose accumulators stay in registers over whole lines of results.
#pragma once
#include <tilewright/cpu/conv/geometry.h>

namespace tw {

// Lines of results that see the same rows of the window.  Pointers are to the vector's first channel.
template <class In> struct WholeLines {
  const In *x, *y;                         // the line of x under the first row of the window; the first line of y
  int64_t x_row, x_line, y_line;           // elements from row to row of the window, and from line to line
  int64_t x_pixel, y_pixel;                // and from pixel to pixel
  int64_t lines, size, out, before, step;  // lines; pixels of a line of x and of y; padding; stride
  float *kept;
};

// accum[r][t] += what pixel `u` of x contributes; `live(t)` says whether its tap t meets a result.
template <int Rows, int Taps, class In, class Live>
TW_INLINE void add_pixel(vf (&accum)[Rows][Taps], const In *const (&row)[Rows], int64_t at, const vf (&gradient)[Taps],
                         const Live &live) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    vf x = vf(held(vu(load_as_float(row[r] + at))));
#pragma GCC unroll 8
    for (int t = 0; t < Taps; ++t)
      if (live(t)) accum[r][t] = accum[r][t] + x * gradient[t];
  }
}

// Stride 1: a pixel of x is loaded once for all taps, whose gradients wait in registers.  Pixel u meets result
// u + before - t by tap t; between `first` and `last` all of these are results.
template <class In, int Rows, int Taps>
TW_INLINE void sliding_line(const WholeLines<In> &o, const In *x, const In *y, vf (&accum)[Rows][Taps]) {
  const int64_t first = Taps - 1 - o.before, last = o.out - o.before;
  const In *row[Rows];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) row[r] = x + r * o.x_row;
  vf gradient[Taps];  // of result u + before - t
#pragma GCC unroll 8
  for (int t = 0; t < Taps; ++t) gradient[t] = t < o.before ? load_as_float(y + (o.before - 1 - t) * o.y_pixel) : vf{};
  auto shift = [&](vf next) {
#pragma GCC unroll 8
    for (int t = Taps - 1; t > 0; --t) gradient[t] = gradient[t - 1];
    gradient[0] = next;
  };
  int64_t u = 0, at = 0;
  const In *next = y + o.before * o.y_pixel;
  for (; u < first; ++u, at += o.x_pixel, next += o.y_pixel) {
    shift(load_as_float(next));
    add_pixel<Rows, Taps>(accum, row, at, gradient, [&](int t) { return t <= u + o.before; });
  }
  for (; u + Taps <= last; u += Taps) {
    // Once round: each gradient is loaded over the oldest one.
#pragma GCC unroll 8
    for (int s = 0; s < Taps; ++s, at += o.x_pixel, next += o.y_pixel) {
      gradient[Taps - 1 - s] = load_as_float(next);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        vf pixel = vf(held(vu(load_as_float(row[r] + at))));
#pragma GCC unroll 8
        for (int t = 0; t < Taps; ++t) accum[r][t] = accum[r][t] + pixel * gradient[(Taps - 1 - s + t) % Taps];
      }
    }
  }
  for (; u < last; ++u, at += o.x_pixel, next += o.y_pixel) {
    shift(load_as_float(next));
    add_pixel<Rows, Taps>(accum, row, at, gradient, [](int) { return true; });
  }
  for (; u < o.size; ++u, at += o.x_pixel) {
    shift(vf{});
    add_pixel<Rows, Taps>(accum, row, at, gradient, [&](int t) { return t > u - last; });
  }
}

// Other strides: a gradient is loaded once for all taps.
template <class In, int Rows, int Taps>
TW_INLINE void striding_line(const WholeLines<In> &o, const In *x, const In *y, vf (&accum)[Rows][Taps]) {
  for (int64_t p = 0, u = -o.before; p < o.out; ++p, u += o.step, y += o.y_pixel) {
    vf gradient = load_as_float(y);
    const In *pixel = x + u * o.x_pixel;
    if (u >= 0 && u + Taps <= o.size) {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int t = 0; t < Taps; ++t)
          accum[r][t] = accum[r][t] + gradient * load_as_float(pixel + r * o.x_row + t * o.x_pixel);
      continue;
    }
#pragma GCC unroll 8
    for (int t = 0; t < Taps; ++t)
      if (u + t >= 0 && u + t < o.size)
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
          accum[r][t] = accum[r][t] + gradient * load_as_float(pixel + r * o.x_row + t * o.x_pixel);
  }
}

// kept[row of the window][tap] += the lines' products.
template <class In, int Rows, int Taps, bool Sliding>
__attribute__((noinline)) void whole_lines(const WholeLines<In> &o) {
  vf accum[Rows][Taps];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < Taps; ++t) accum[r][t] = load_f(o.kept + (r * Taps + t) * lanes);
  const In *x = o.x, *y = o.y;
  for (int64_t line = 0; line < o.lines; ++line, x += o.x_line, y += o.y_line) {
    if constexpr (Sliding) sliding_line<In, Rows, Taps>(o, x, y, accum);
    else striding_line<In, Rows, Taps>(o, x, y, accum);
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < Taps; ++t) store_f(o.kept + (r * Taps + t) * lanes, accum[r][t]);
}

}  // namespace tw
