// Shared memory of band kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once
#include <tilewright/cuda/gemm/tma_ws/memory.h>

namespace tw {

constexpr int band_buffers = 2;                    // for results, of each of two consumer warpgroups
constexpr int band_barriers = 640;                 // bytes of them: 16 for each band and each tap
constexpr int band_beside = 1024 + band_barriers;  // and alignment

constexpr int band_bytes_of(int rows) { return rows * tma_ws_k_bytes; }
constexpr int band_shared_bytes(int bands, int rows, int taps, int columns, bool by_lines) {
  return bands * band_bytes_of(rows) + taps * tma_ws_column_bytes(columns, by_lines) +
         2 * band_buffers * tma_ws_chunk_bytes(columns) + band_beside;
}

}  // namespace tw
