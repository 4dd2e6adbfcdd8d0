// Register blocks of conv_lanes.h: a run of result pixels of one line by one vector of channels, or one pixel by some.
#pragma once
#include <tilewright/cpu/primitives/convert.h>

namespace tw {

// A row of the window that lies inside: where its line begins, and which it is.
struct WindowRow {
  int64_t line, row;
};

// `Width` pixels: accumulated over rows of the filter, each with `inner` taps and channels at `offsets`.
template <int Width> __attribute__((noinline)) void lane_block(const float *strip, const WindowRow *rows,
                                                               int64_t number, const int64_t *offsets, int64_t inner,
                                                               const float *weights, float *out, int64_t ld) {
  vf accum[Width];
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) accum[i] = vf{};
  for (int64_t r = 0; r < number; ++r) {
    const float *line = strip + rows[r].line, *w = weights + rows[r].row * inner * lanes;
    for (int64_t t = 0; t < inner; ++t, w += lanes) {
      const float *from = line + offsets[t];
      vf weight = load_f(w);
#pragma GCC unroll 32
      for (int i = 0; i < Width; ++i) accum[i] = accum[i] + load_f(from + i * lanes) * weight;
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) store_f(out + i * ld, accum[i]);
}

// The same where the taps of the width are `Taps` neighbours and results are `Step` pixels apart: a pixel, of which the
// next lies `pitch` elements on, is loaded once for all taps that meet it.
template <class In, int Width, int Taps, int Step>
__attribute__((noinline)) void sliding_block(const In *first, int64_t pitch, const WindowRow *rows, int64_t number,
                                             bool backwards, const float *weights, float *out, int64_t ld) {
  vf accum[Width];
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) accum[i] = vf{};
  for (int64_t r = 0; r < number; ++r) {
    const In *pixel = first + rows[r].line;
    const float *w = weights + rows[r].row * Taps * lanes;
    vf weight[Taps];
#pragma GCC unroll 8
    for (int t = 0; t < Taps; ++t) weight[t] = load_f(w + (backwards ? Taps - 1 - t : t) * lanes);
#pragma GCC unroll 64
    for (int j = 0; j < (Width - 1) * Step + Taps; ++j, pixel += pitch) {
      vf x = vf(held(vu(load_as_float(pixel))));
#pragma GCC unroll 8
      for (int t = 0; t < Taps; ++t)
        if (j >= t && (j - t) % Step == 0 && (j - t) / Step < Width)
          accum[(j - t) / Step] = accum[(j - t) / Step] + x * weight[t];
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < Width; ++i) store_f(out + i * ld, accum[i]);
}

// One pixel near the border, `Vectors` vectors of channels side by side: taps [begin, end) of each row of the window lie
// inside, the first of them at `first`, each `step` elements from the one before.  Weights of a vector are `each` floats.
template <class In, int Vectors>
__attribute__((noinline)) void border_block(const In *first, int64_t step, const WindowRow *rows, int64_t number,
                                            int64_t begin, int64_t end, int64_t taps, const float *weights,
                                            int64_t each, float *out) {
  vf accum[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) accum[v] = vf{};
  for (int64_t r = 0; r < number; ++r) {
    const In *pixel = first + rows[r].line;
    const float *w = weights + (rows[r].row * taps + begin) * lanes;
    for (int64_t t = begin; t < end; ++t, w += lanes, pixel += step)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) accum[v] = accum[v] + load_as_float(pixel + v * lanes) * load_f(w + v * each);
  }
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) store_f(out + v * lanes, accum[v]);
}

}  // namespace tw
