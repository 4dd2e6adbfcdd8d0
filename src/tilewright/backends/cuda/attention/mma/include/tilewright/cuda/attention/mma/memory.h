// Shared memory of mma kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

// From row to row of shared memory: an odd number of 16 bytes, so that eight rows are in different banks.
constexpr int mma_pitch(int bytes) { return bytes / 16 % 2 ? bytes : bytes + 16; }

constexpr int mma_row_bytes(int tile_m, int head_dim) { return tile_m * mma_pitch(head_dim * 2); }
constexpr int mma_key_bytes(int tile_n, int head_dim, int size) { return tile_n * mma_pitch(head_dim * size); }
// `transposed`: values come with keys side by side.
constexpr int mma_value_bytes(int tile_n, int head_dim_v, int size, bool transposed) {
  return transposed ? head_dim_v * mma_pitch(tile_n * size) : tile_n * mma_pitch(head_dim_v * size);
}
// A tile of keys or of values.
constexpr int mma_slot_bytes(int tile_n, int head_dim, int head_dim_v, int size, bool transposed) {
  return mma_key_bytes(tile_n, head_dim, size) > mma_value_bytes(tile_n, head_dim_v, size, transposed)
             ? mma_key_bytes(tile_n, head_dim, size)
             : mma_value_bytes(tile_n, head_dim_v, size, transposed);
}
// Weights, and largest scores, of warps that share rows; a factor of each row.
constexpr int mma_weight_bytes(int tile_m, int tile_n, int warps_n) {
  return warps_n > 1 ? tile_m * mma_pitch(tile_n * 2) : 0;
}
constexpr int mma_sync_bytes(int tile_m, int warps_n) { return warps_n > 1 ? warps_n * tile_m * 4 : 0; }
constexpr int mma_factor_bytes(int tile_m, bool scales_rows) { return scales_rows ? tile_m * 4 : 0; }
constexpr int mma_kept_bytes(int tile_m, int tile_n, int warps_n, bool scales_rows) {
  return mma_weight_bytes(tile_m, tile_n, warps_n) + mma_sync_bytes(tile_m, warps_n) +
         mma_factor_bytes(tile_m, scales_rows);
}

}  // namespace tw
