// Which entries of a softmax dropout keeps: the one statement of it, for every target.
//
// Philox 4x32 with 10 rounds (Salmon and others, 2011).  An entry is (sequence, query head, row, column), counted from
// the start of the sequence.  One draw decides eight columns of a row, those a lane of a matrix unit holds: with
//
//   counter = (column / 32 * 4 + column % 8 / 2,  row,  sequence * heads + head,  low half of the offset)
//   key     = (low half of the seed,  high half of the seed xor high half of the offset)
//
// column c looks at word c % 32 / 8, its low 16 bits where c is even, else its high 16.  The entry is kept where these are
// at least `threshold`, the chance to drop in 65536ths, rounded; what is kept is divided by 1 - threshold / 65536.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define TW_BOTH __host__ __device__ __forceinline__
#else
#define TW_BOTH inline
#endif

namespace tw {

struct Philox {
  uint32_t word[4];
};

TW_BOTH Philox philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c0, b = uint64_t(0xCD9E8D57u) * c2;
    const uint32_t x = uint32_t(b >> 32) ^ c1 ^ k0, y = uint32_t(a >> 32) ^ c3 ^ k1;
    c0 = x, c1 = uint32_t(b), c2 = y, c3 = uint32_t(a);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The dropout of a launch.
struct Dropout {
  uint32_t threshold, seed_low, seed_high, offset_low;
  float keep;  // what is kept is multiplied by it

  TW_BOTH static Dropout of(double chance, uint64_t seed, uint64_t offset) {
    const double parts = chance * 65536.0 + 0.5;
    const uint32_t threshold = parts >= 65535.0 ? 65535u : uint32_t(parts);
    return {threshold, uint32_t(seed), uint32_t(seed >> 32) ^ uint32_t(offset >> 32), uint32_t(offset),
            float(65536.0 / (65536.0 - double(threshold)))};
  }
  // The draw that decides column c of a row (and seven others).
  TW_BOTH Philox draw(uint32_t sequence_head, uint32_t row, uint32_t c) const {
    return philox(c / 32 * 4 + c % 8 / 2, row, sequence_head, offset_low, seed_low, seed_high);
  }
  TW_BOTH bool keeps(const Philox &drawn, uint32_t c) const {
    return (drawn.word[c % 32 / 8] >> (c % 2 * 16) & 0xffffu) >= threshold;
  }
  TW_BOTH bool keeps(uint32_t sequence_head, uint32_t row, uint32_t c) const {
    return keeps(draw(sequence_head, row, c), c);
  }
};

}  // namespace tw
