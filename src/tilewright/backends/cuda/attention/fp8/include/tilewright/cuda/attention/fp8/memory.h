// Shared memory of fp8 kernels, in bytes, and registers.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

constexpr int fp8_line = 128;          // elements, and bytes, of a swizzled row
constexpr int fp8_beside = 1024 + 16;  // alignment, and the barriers of rows

constexpr int fp8_blocks(int size) { return (size + fp8_line - 1) / fp8_line; }
constexpr int fp8_tile_bytes(int rows, int head_dim) { return fp8_blocks(head_dim) * rows * fp8_line; }
constexpr int fp8_transposed_bytes(int tile_n, int head_dim_v) { return fp8_blocks(tile_n) * head_dim_v * fp8_line; }
// Keys, values, values transposed, and their barriers.
constexpr int fp8_stage_bytes(int tile_n, int head_dim, int head_dim_v) {
  return fp8_tile_bytes(tile_n, head_dim) + fp8_tile_bytes(tile_n, head_dim_v) +
         fp8_transposed_bytes(tile_n, head_dim_v) + 8 * 6;
}

// What a consumer thread holds: results, scores, these again as weights of one byte; `features` of scores and dropout,
// in two parts of the loop.
constexpr int fp8_held_registers(int head_dim_v, int tile_n, int features) {
  return head_dim_v / 2 + tile_n / 2 + tile_n / 8 + 28 + 24 * features;
}
// Those who turn values take what tiles leave, and have fewer loads under way where that is little.
constexpr bool fp8_large(int held) { return held > 200; }
constexpr int fp8_producer_registers(int warpgroups, int held) {
  return warpgroups == 1 ? 96 : warpgroups == 3 ? 56 : fp8_large(held) ? 40 : 72;
}
// 0: no kernel has so many warpgroups.
constexpr int fp8_consumer_registers(int warpgroups, int held) {
  return warpgroups == 1 ? 240 : warpgroups == 2 ? (fp8_large(held) ? 232 : 216) : warpgroups == 3 ? 152 : 0;
}

}  // namespace tw
