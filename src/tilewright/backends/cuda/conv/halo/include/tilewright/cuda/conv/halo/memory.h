// Shared memory of halo kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once
#include <tilewright/cuda/gemm/tma_ws/memory.h>

namespace tw {

constexpr int halo_buffers = 2;                    // for results, of each of two consumer warpgroups
constexpr int halo_barriers = 640;                 // bytes of them: 16 for each halo tile and each tap
constexpr int halo_beside = 1024 + halo_barriers;  // and alignment

constexpr int halo_bytes_of(int rows) { return rows * tma_ws_k_bytes; }
constexpr int halo_shared_bytes(int halos, int rows, int taps, int columns, bool by_lines) {
  return halos * halo_bytes_of(rows) + taps * tma_ws_column_bytes(columns, by_lines) +
         2 * halo_buffers * tma_ws_chunk_bytes(columns) + halo_beside;
}

}  // namespace tw
