// Shared memory of halo_wgrad kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once
#include <tilewright/cuda/conv/halo/memory.h>

namespace tw {

constexpr int halo_wgrad_beside = 1024 + 128;  // alignment, and the barriers

// A stage: a halo tile of x, and its rows of y.
constexpr int halo_wgrad_shared_bytes(int halos, int rows, int pixels) {
  return halos * (halo_bytes_of(rows) + halo_bytes_of(pixels)) + halo_wgrad_beside;
}

}  // namespace tw
