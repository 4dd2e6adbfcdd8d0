// Shared memory of band_weight kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once
#include <tilewright/cuda/conv/band/memory.h>

namespace tw {

constexpr int band_weight_beside = 1024 + 128;  // alignment, and the barriers

// A stage: a band of x, and its rows of y.
constexpr int band_weight_shared_bytes(int bands, int rows, int pixels) {
  return bands * (band_bytes_of(rows) + band_bytes_of(pixels)) + band_weight_beside;
}

}  // namespace tw
