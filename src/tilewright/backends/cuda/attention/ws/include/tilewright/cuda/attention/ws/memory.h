// Shared memory of ws kernels, in bytes, and registers.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

constexpr int ws_rows = 64;   // of a warpgroup
constexpr int ws_line = 128;  // bytes of one swizzled row
constexpr int ws_items = 4;   // that were announced, and of which the next is found beside the one that is worked on
constexpr int ws_item_bytes = 48;    // of `AttentionItem`
constexpr int ws_registers = 65536;  // of a multiprocessor

// Blocks of 128 bytes of the rows of a head of two-byte elements.
constexpr int ws_blocks(int head_dim) { return (head_dim + 63) / 64; }
constexpr int ws_tile_bytes(int rows, int head_dim) { return ws_blocks(head_dim) * rows * ws_line; }
// Keys and values, and the barriers of both.
constexpr int ws_stage_bytes(int tile_n, int head_dim, int head_dim_v) {
  return ws_tile_bytes(tile_n, head_dim) + ws_tile_bytes(tile_n, head_dim_v) + 8 * 4;
}
constexpr int ws_row_stage_bytes(int tile_m, int head_dim) { return ws_tile_bytes(tile_m, head_dim) + 8 * 2; }
// Alignment, and items with their barriers.
constexpr int ws_beside = 1024 + ws_items * ws_item_bytes + 8 * 2 * ws_items;

// Registers of a producer thread, which needs more to find pages or its share, and of one that multiplies; 0: no kernel
// has so many warpgroups, or so many blocks of a multiprocessor.
constexpr int ws_producer_registers(int warpgroups, int ctas_per_sm, bool paged, bool stream_k) {
  return warpgroups == 1 && ctas_per_sm == 1 ? 64
         : warpgroups == 3                   ? 32
         : stream_k                          ? 64
         : warpgroups == 2 && paged          ? 56
                                             : 40;
}
constexpr int ws_consumer_registers(int warpgroups, int ctas_per_sm, bool paged, bool stream_k) {
  return warpgroups == 1 && ctas_per_sm == 1   ? 240
         : warpgroups == 1 && ctas_per_sm == 2 ? (stream_k ? 192 : 216)
         : ctas_per_sm > 1                     ? 0
         : warpgroups == 2                     ? (paged && !stream_k ? 224 : 232)
         : warpgroups == 3                     ? 160
                                               : 0;
}

}  // namespace tw
