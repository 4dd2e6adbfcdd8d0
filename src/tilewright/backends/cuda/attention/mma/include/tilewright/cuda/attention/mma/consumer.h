// The two products of the mma pipeline of attention: queries times keys, weights times values, out of shared memory.
#pragma once
#include <tilewright/cuda/attention/mma/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/copies/copies.h>
#include <tilewright/cuda/primitives/mma.h>
#include <tilewright/cuda/primitives/narrow.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// Four e4m3 as elements of two bytes: bytes 0 and 2, then 1 and 3.  As the bits of the wider type with the exponent of
// e4m3, then scaled: exact, subnormals too.  What would be 480 is NaN.
TW_GPU void widen_pairs(uint32_t w, uint32_t (&to)[2], bf16) {
  to[0] = times_two_to_120((w & 0x00800080u) << 8 | (w & 0x007f007fu) << 4);
  to[1] = times_two_to_120((w & 0x80008000u) | (w & 0x7f007f00u) >> 4);
  if (const uint32_t bad = ((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) {
    to[0] |= (bad >> 7 & 0x00010001u) * 0x7fc0u;
    to[1] |= (bad >> 15 & 0x00010001u) * 0x7fc0u;
  }
}
TW_GPU void widen_pairs(uint32_t w, uint32_t (&to)[2], fp16) {
#if TW_MMA_FP8
  const uint32_t even_first = permute(w, 0, 0x3120);
  to[0] = widen_two(fp8_e4m3{}, even_first & 0xffffu), to[1] = widen_two(fp8_e4m3{}, even_first >> 16);
#else
  to[0] = times_256((w & 0x007f007fu) << 7) | (w & 0x00800080u) << 8;
  to[1] = times_256((w & 0x7f007f00u) >> 1) | (w & 0x80008000u);
  if (const uint32_t bad = ((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) {
    to[0] |= (bad >> 7 & 0x00010001u) * 0x7e00u;
    to[1] |= (bad >> 15 & 0x00010001u) * 0x7e00u;
  }
#endif
}

template <class S> using WarpScores = float[S::R][S::warp_keys / 2];
template <class S> using WarpResults = float[S::R][S::warp_columns / 2];

// The warp's rows times its keys.  `q` is where its first row lies, `k` its first key.  Few accumulators have one more set, which
// takes turns: an instruction waits long for the one whose accumulators it adds to.
template <class S> TW_GPU void multiply_keys(WarpScores<S> &s, const char *q, const char *k) {
  using T = typename S::T;
  constexpr int sets = S::R * S::warp_keys < 32 ? 2 : 1;
  const int lane = thread_index() % 32;
  float accum[sets][S::R][S::warp_keys / 2] = {};
  const char *row = q + lane % 16 * S::q_pitch + lane / 16 * 16;
  const char *key = S::narrow ? k + (lane % 8 + lane / 16 * 8) * S::k_pitch + lane / 8 % 2 * 16
                              : k + lane % 8 * S::k_pitch + lane / 8 * 16;
#pragma unroll(S::D > 256 ? 6 : S::D / 32)
  for (int step = 0; step < S::D / 32; ++step) {
    uint32_t a[S::R][2][4];
#pragma unroll
    for (int r = 0; r < S::R; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) load_matrices(a[r][h], row + r * 16 * S::q_pitch + step * 64 + h * 32);
    if constexpr (S::narrow) {
#pragma unroll
      for (int i = 0; i < S::warp_keys / 16; ++i) {  // 16 keys, 32 elements of each
        uint32_t b[4];
        load_matrices(b, key + i * 16 * S::k_pitch + step * 32);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint32_t wide[2];
          widen_pairs(b[j], wide, T{});
#pragma unroll
          for (int r = 0; r < S::R; ++r) mma(&accum[j % sets][r][(i * 2 + j / 2) * 4], a[r][j % 2], wide, T{}, T{});
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < S::warp_keys / 8; ++i) {  // 8 keys, 32 elements of each
        uint32_t b[4];
        load_matrices(b, key + i * 8 * S::k_pitch + step * 64);
#pragma unroll
        for (int r = 0; r < S::R; ++r) {
          mma(&accum[0][r][i * 4], a[r][0], b, T{}, T{});
          mma(&accum[sets - 1][r][i * 4], a[r][1], b + 2, T{}, T{});
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < S::R; ++r)
#pragma unroll
    for (int i = 0; i < S::warp_keys / 2; ++i) s[r][i] = accum[0][r][i] + (sets > 1 ? accum[sets - 1][r][i] : 0.0f);
}

// Weights times 16 keys of values, on top of what was there.  `v` is where the first of these keys lies (of transposed
// values: of the warp's first column), at the warp's first column.
template <class S>
TW_GPU void multiply_values(WarpResults<S> &o, const uint32_t (&p)[S::R][4], const char *v, int pitch) {
  using T = typename S::T;
  const int lane = thread_index() % 32;
#pragma unroll
  for (int j = 0; j < S::warp_columns / 16; ++j) {
    uint32_t b[4];
    if constexpr (S::narrow && S::transposed) {
      // Of two columns, keys in pairs: bytes are loaded one pair after the other.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const char *at = v + (j * 16 + i / 2 * 8 + lane / 4) * pitch + i % 2 * 8 + lane % 4 * 2;
        const uint32_t two = load_shared<uint16_t>(at);
        uint32_t wide[2];
        widen_pairs((two & 0xff) | (two & 0xff00) << 8, wide, T{});
        b[i] = wide[0];
      }
    } else if constexpr (S::transposed) {
      load_matrices(b, v + (j * 16 + lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16);
    } else {
      load_matrices_transposed(b, v + lane % 16 * pitch + j * 32 + lane / 16 * 16);
    }
#pragma unroll
    for (int r = 0; r < S::R; ++r) {
      mma(&o[r][j * 8], p[r], b, T{}, T{});
      mma(&o[r][j * 8 + 4], p[r], b + 2, T{}, T{});
    }
  }
}
// The same of fp8 and 32 keys: the even columns of each 16 are one block of results, the odd ones the next.
template <class S>
TW_GPU void multiply_narrow_values(WarpResults<S> &o, const uint32_t (&p)[2][S::R][4], const char *v, int pitch) {
  using T = typename S::T;
  const int lane = thread_index() % 32;
#pragma unroll
  for (int j = 0; j < S::warp_columns / 16; ++j) {
    uint32_t b[4], wide[4][2];
    load_matrices_transposed(b, v + lane * pitch + j * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) widen_pairs(b[i], wide[i], T{});
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const uint32_t two[2] = {wide[h * 2][odd], wide[h * 2 + 1][odd]};
#pragma unroll
        for (int r = 0; r < S::R; ++r) mma(&o[r][j * 8 + odd * 4], p[h][r], two, T{}, T{});
      }
  }
}

}  // namespace tw
#endif
