// Shared memory of mla kernels, in bytes, and registers.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

constexpr int mla_rows = 64;                // of a block
constexpr int mla_line = 64;                // elements of a swizzled row of 128 bytes
constexpr int mla_producer_registers = 56;  // of a thread, and of one that multiplies
constexpr int mla_consumer_registers = 224;
constexpr int mla_factor_bytes = 2 * mla_rows * 4;  // factors of rows: of a tile, and of the results

constexpr int mla_blocks(int size) { return (size + mla_line - 1) / mla_line; }
constexpr int mla_tile_bytes(int rows, int size) { return mla_blocks(size) * rows * 128; }
// Rows of queries, tiles of keys with their barriers, weights.
constexpr int mla_shared_bytes(int stages, int tile_n, int head_dim) {
  return 1024 + mla_tile_bytes(mla_rows, head_dim) + stages * (mla_tile_bytes(tile_n, head_dim) + 8 * 2) +
         mla_tile_bytes(mla_rows, tile_n) + mla_factor_bytes;
}

}  // namespace tw
