// How rows of results leave: from the registers, 16 bytes a thread.
//
// The four lanes that have a row turn blocks of columns among themselves, so that each has eight that are neighbours and
// the four write 64 bytes.  This needs no shared memory, and serves rows that lie anywhere.
#pragma once
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// Of four lanes with four words each, lane t gets the t-th of all.
TW_GPU void turn_words(uint32_t (&w)[4]) {
  const int lane = int(threadIdx.x % 32);
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int i = bit == 1 ? n * 2 : n;
      const bool upper = lane & bit;
      const uint32_t got = lane_at(upper ? w[i] : w[i + bit], lane ^ bit);
      if (upper) w[i] = got;
      else w[i + bit] = got;
    }
}

// One of the two rows that a thread has of accumulators as matrix units keep them, times a factor; `to` may be nothing.
template <int Columns, class O>
TW_GPU void store_row(const float (&o)[Columns / 2], int r, float factor, O *to, int columns) {
  const int lane = int(threadIdx.x % 4);
  const auto times = [factor](float value) { return factor == 0 ? 0.0f : value * factor; };
  if constexpr (sizeof(O) == 2) {
#pragma unroll
    for (int i = 0; i < Columns / 32; ++i) {
      uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        w[j] = pair(O{}, times(o[i * 16 + j * 4 + r * 2]), times(o[i * 16 + j * 4 + r * 2 + 1]));
      turn_words(w);
      const int column = i * 32 + lane * 8;
      if (to && column < columns) *reinterpret_cast<uint4 *>(to + column) = uint4{w[0], w[1], w[2], w[3]};
    }
  } else {
#pragma unroll
    for (int i = 0; i < Columns / 16; ++i) {  // two lanes turn two blocks
      const float *a = o + i * 8 + r * 2, *b = a + 4;
      const bool upper = lane & 1;
      const float x = times(upper ? a[0] : b[0]), y = times(upper ? a[1] : b[1]);
      const float got_x = lane_xor(x, 1), got_y = lane_xor(y, 1);
      const float own_x = times(upper ? b[0] : a[0]), own_y = times(upper ? b[1] : a[1]);
      const int column = i * 16 + (upper ? 8 : 0) + lane / 2 * 4;
      if (to && column < columns)
        *reinterpret_cast<float4 *>(to + column) =
            upper ? float4{got_x, got_y, own_x, own_y} : float4{own_x, own_y, got_x, got_y};
    }
  }
}

}  // namespace tw
