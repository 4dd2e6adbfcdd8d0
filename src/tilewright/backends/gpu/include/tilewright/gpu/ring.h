// A ring of stages in shared memory, filled by some and emptied by others.
#pragma once
#include <stdint.h>

#ifndef TW_GPU
#define TW_GPU __device__ __forceinline__
#endif

namespace tw {

// A place in a ring of stages: which one, and how often the ring has gone round.
template <int Stages> struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  TW_GPU void next() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
  TW_GPU void skip(int stages) {
    const int at = stage + stages;
    phase ^= (at / Stages) & 1;
    stage = at % Stages;
  }
};

}  // namespace tw
