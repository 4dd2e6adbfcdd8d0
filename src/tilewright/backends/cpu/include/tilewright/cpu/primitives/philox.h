// Philox 4x32-10 (tilewright/philox.h) of counters in lanes.
#pragma once
#include <tilewright/cpu/primitives/vec.h>
#include <tilewright/philox.h>

namespace tw {

typedef uint64_t wide_lanes __attribute__((vector_size(vector_bytes)));

// Products of words by a constant: their low and their high halves.  Even and odd lanes apart, as 64 bits.
TW_INLINE void multiply_words(vu x, uint32_t by, vu &low, vu &high) {
  const wide_lanes all = wide_lanes(x), factor = wide_lanes{} + by;
  const wide_lanes even = (all & 0xffffffffu) * factor, odd = (all >> 32) * factor;
  low = vu((even & 0xffffffffu) | odd << 32);
  high = vu(even >> 32 | (odd & 0xffffffff00000000u));
}

// Counters become what is drawn, in place.
__attribute__((noinline)) inline void philox_lanes(vu (&words)[4], uint32_t k0, uint32_t k1) {
  vu c0 = words[0], c1 = words[1], c2 = words[2], c3 = words[3];
#pragma GCC unroll 1
  for (int round = 0; round < 10; ++round) {
    vu a_low, a_high, b_low, b_high;
    multiply_words(c0, 0xD2511F53u, a_low, a_high);
    multiply_words(c2, 0xCD9E8D57u, b_low, b_high);
    c0 = b_high ^ c1 ^ k0, c1 = b_low, c2 = a_high ^ c3 ^ k1, c3 = a_low;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

}  // namespace tw
