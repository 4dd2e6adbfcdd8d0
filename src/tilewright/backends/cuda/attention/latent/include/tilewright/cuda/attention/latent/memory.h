// Shared memory of latent kernels, in bytes, and registers.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

constexpr int latent_rows = 64;               // of a block
constexpr int latent_line = 64;               // elements of a swizzled row of 128 bytes
constexpr int latent_feeding_registers = 56;  // of a thread, and of one that multiplies
constexpr int latent_multiplying_registers = 224;
constexpr int latent_told = 2 * latent_rows * 4;  // factors of rows: of a tile, and of the results

constexpr int latent_blocks(int size) { return (size + latent_line - 1) / latent_line; }
constexpr int latent_tile_bytes(int rows, int size) { return latent_blocks(size) * rows * 128; }
// Rows of queries, tiles of keys with their barriers, weights.
constexpr int latent_shared_bytes(int stages, int tile_n, int head_dim) {
  return 1024 + latent_tile_bytes(latent_rows, head_dim) + stages * (latent_tile_bytes(tile_n, head_dim) + 8 * 2) +
         latent_tile_bytes(latent_rows, tile_n) + latent_told;
}

}  // namespace tw
