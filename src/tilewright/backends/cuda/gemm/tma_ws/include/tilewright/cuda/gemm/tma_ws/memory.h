// Shared memory of tma_ws kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

constexpr int tma_ws_k_bytes = 128;        // of one swizzled row: the k of a stage
constexpr int tma_ws_lines = 64;           // of a stage that are fetched together where they are contiguous
constexpr int tma_ws_beside = 1024 + 320;  // alignment of the stages, and the barriers
constexpr int tma_ws_fewest_buffers =
    2;  // for results, of each consumer warpgroup: two are one staging buffer of accumulators
constexpr int tma_ws_usual_buffers = 4;  // at most, where a tile's whole share does not fit...
constexpr int tma_ws_small_buffers = 8;  // ...and of the smallest, four of which leave together

// Lines that are contiguous are fetched 64 at a time, also where a tile has fewer of them.
constexpr int tma_ws_column_bytes(int columns, bool by_lines) {
  return (by_lines ? (columns + tma_ws_lines - 1) / tma_ws_lines * tma_ws_lines : columns) * tma_ws_k_bytes;
}
// Lines along k of a tile that a block of a cluster fetches at a time for all of them: a part where parts are whole
// swizzled atoms; else all, and the blocks take turns.
constexpr int tma_ws_part(int lines, int parts) { return lines % (8 * parts) == 0 ? lines / parts : lines; }
constexpr int tma_ws_stage_bytes(int rows, int columns, bool by_lines) {
  return rows * tma_ws_k_bytes + (tma_ws_column_bytes(columns, by_lines) + 1023) / 1024 * 1024;
}

// Results leave 64 rows at a time, as wide as divides the tile: 128, 64, 32 or 16 bytes, swizzled.
constexpr int tma_ws_chunk_columns(int columns) {
  return columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : columns % 16 == 0 ? 16 : 8;
}
constexpr int tma_ws_chunk_bytes(int columns) { return 64 * tma_ws_chunk_columns(columns) * 2; }

// Each consumer warpgroup has as many such buffers as its share of a tile needs, or where there is no room for these
// beside the stages, two to four, or eight of the smallest.
constexpr int tma_ws_needed_buffers(int warpgroup_rows, int columns) {
  return warpgroup_rows / 64 * (columns / tma_ws_chunk_columns(columns));
}
constexpr int tma_ws_room(int available, int stages, int stage_bytes, int warpgroups, int columns) {
  return (available - tma_ws_beside - stages * stage_bytes) / (warpgroups * tma_ws_chunk_bytes(columns));
}
constexpr int tma_ws_buffers(int needed, int room, bool tma_store, int columns) {
  return needed < 2 || !tma_store || room < 2                                 ? tma_ws_fewest_buffers
         : needed <= room                                                     ? needed
         : room < tma_ws_usual_buffers                                        ? room
         : tma_ws_chunk_columns(columns) == 8 && room >= tma_ws_small_buffers ? tma_ws_small_buffers
                                                                              : tma_ws_usual_buffers;
}
constexpr int tma_ws_shared_bytes(int stages, int stage_bytes, int warpgroups, int buffers, int columns) {
  return stages * stage_bytes + warpgroups * buffers * tma_ws_chunk_bytes(columns) + tma_ws_beside;
}
// Stages that fit with the fewest buffers.
constexpr int tma_ws_most_stages(int available, int stage_bytes, int warpgroups, int columns) {
  return (available - tma_ws_beside - warpgroups * tma_ws_fewest_buffers * tma_ws_chunk_bytes(columns)) / stage_bytes;
}

}  // namespace tw
