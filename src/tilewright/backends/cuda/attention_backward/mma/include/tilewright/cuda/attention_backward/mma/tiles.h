// Tiles of the mma pipeline of attention's gradients: how they come to shared memory, and what is multiplied of them.
#pragma once
#include <tilewright/cuda/attention_backward/mma/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/copies/copies.h>
#include <tilewright/cuda/primitives/mma.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// What is owned: lines of D elements, then of DV; stages of what is met; prepared numbers; weights and gradients.
template <class S> struct MmaBackwardShared {
  TW_GPU char *own_d() const { return dynamic_shared(); }
  TW_GPU char *own_v() const { return own_d() + S::own * S::d_pitch; }
  TW_GPU char *met_d(int stage) const { return own_d() + S::own_bytes + stage * S::met_bytes; }
  TW_GPU char *met_v(int stage) const { return met_d(stage) + S::met * S::d_pitch; }
  TW_GPU float *lse(int stage) const { return reinterpret_cast<float *>(met_d(S::stages) + stage * S::number_bytes); }
  TW_GPU float *delta(int stage) const { return lse(stage) + S::met; }
  TW_GPU char *weights() const { return reinterpret_cast<char *>(lse(S::stages)); }
  TW_GPU char *gradients() const { return weights() + S::weights_bytes; }
};

// Lines of a head from `at` on, 16 bytes a thread; zeros behind the last and behind its elements.
template <class S, int Elements, int Lines>
TW_GPU void bring_lines(char *to, const void *base, const tw_attention_strides &strides, int sequence, int first,
                        int at, int count, int head, int columns, bool wide, const void *starts) {
  using T = typename S::T;
  constexpr int pieces = Elements / 8, pitch = S::template pitch<Elements>;
  const T *from = static_cast<const T *>(base) + (starts ? 0 : sequence * strides.batch) + head * strides.head;
  for (int i = thread_index(); i < Lines * pieces; i += S::threads) {
    const int line = i / pieces, piece = i % pieces, left = at + line < count ? columns - piece * 8 : 0;
    const T *source = left > 0 ? from + (first + int64_t(at) + line) * strides.row + piece * 8 : from;
    char *place = to + line * pitch + piece * 16;
    if (wide) {
      copy_async<16>(place, reinterpret_cast<const char *>(source), left >= 8 ? 16 : left > 0 ? left * 2 : 0);
    } else {
      Word16 words;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t low = j * 2 < left ? source[j * 2].bits : 0,
                       high = j * 2 + 1 < left ? source[j * 2 + 1].bits : 0;
        words.w[j] = low | high << 16;
      }
      store_shared(place, words);
    }
  }
}

// 16 lines times `Lines` others: dot products over D elements.
template <class T, int D, int Lines>
TW_GPU void multiply_lines(float (&s)[Lines / 2], const char *a, int a_pitch, const char *b, int b_pitch) {
  const int lane = thread_index() % 32;
  const char *left = a + lane % 16 * a_pitch + lane / 16 * 16, *right = b + lane % 8 * b_pitch + lane / 8 * 16;
#pragma unroll
  for (int i = 0; i < Lines / 2; ++i) s[i] = 0;
#pragma unroll
  for (int step = 0; step < D / 32; ++step) {
    uint32_t p[2][4];
    load_matrices(p[0], left + step * 64);
    load_matrices(p[1], left + step * 64 + 32);
#pragma unroll
    for (int i = 0; i < Lines / 8; ++i) {
      uint32_t q[4];
      load_matrices(q, right + i * 8 * b_pitch + step * 64);
      mma(s + i * 4, p[0], q, T{}, T{});
      mma(s + i * 4, p[1], q + 2, T{}, T{});
    }
  }
}
// 16 lines of weights of 16 others times these, on top of what was there.
template <class T, int Columns>
TW_GPU void add_lines(float (&accum)[Columns / 2], const uint32_t (&weights)[4], const char *lines, int pitch) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int j = 0; j < Columns / 16; ++j) {
    uint32_t b[4];
    load_matrices_transposed(b, lines + lane % 16 * pitch + j * 32 + lane / 16 * 16);
    mma(accum + j * 8, weights, b, T{}, T{});
    mma(accum + j * 8 + 4, weights, b + 2, T{}, T{});
  }
}

}  // namespace tw
#endif
