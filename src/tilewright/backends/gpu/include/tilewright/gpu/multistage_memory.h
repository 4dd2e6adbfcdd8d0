// Shared memory of multistage kernels, in bytes.  Python reads this text too (backends/constexpr.py).
#pragma once

namespace tw {

constexpr int multistage_unit_rows = 16;  // of one matrix instruction, or what counts as one

// Columns of a warp's unit: two matrix instructions; of plain multiply-adds what 32 lanes share.
constexpr int multistage_unit_columns(bool plain) { return plain ? 32 : 16; }

// A row of plain floats: one k of all lines; `transposed` ones are written a float at a time, each k four banks further.
constexpr int plain_row_bytes(int lines, bool transposed) { return lines * 4 + (transposed ? 16 : 0); }
constexpr int multistage_tile_bytes(int size, int lines, int deep, bool plain, bool transposed) {
  return plain ? deep * plain_row_bytes(lines, transposed) : lines * deep * size;
}

// Plain floats that are contiguous along k come one by one, and are transposed on the way.
constexpr bool operand_single(bool plain, bool along_k) { return plain && along_k; }
// Bytes whose lines are contiguous are transposed in shared memory, and rows that begin anywhere are moved into place there.
constexpr bool operand_transposed(int size, bool along_k) { return size == 1 && !along_k; }
constexpr bool operand_realigned(int size, bool along_k, int vector_bytes) {
  return operand_transposed(size, along_k) || vector_bytes < 4;
}
// Of the source: a row has room for 16 more bytes where it is realigned.
constexpr int operand_rows(int lines, int deep, bool along_k) { return along_k ? lines : deep; }
constexpr int operand_width(int size, int lines, int deep, bool along_k) { return (along_k ? deep : lines) * size; }
constexpr int operand_raw_row(int size, int lines, int deep, bool along_k) {
  return operand_width(size, lines, deep, along_k) + 16;
}
// Bytes of a piece of a row that a thread copies, and how many of them lie side by side: single ones are a sector.
constexpr int operand_piece(int size, bool plain, bool along_k, int vector_bytes) {
  return operand_realigned(size, along_k, vector_bytes) ? 16 : operand_single(plain, along_k) ? size : vector_bytes;
}
constexpr int operand_pieces(int size, int lines, int deep, bool plain, bool along_k, int vector_bytes) {
  return operand_single(plain, along_k)
             ? 8
             : operand_width(size, lines, deep, along_k) / operand_piece(size, plain, along_k, vector_bytes);
}

constexpr int operand_stage_bytes(int size, int lines, int deep, bool plain, bool along_k, int vector_bytes) {
  return operand_realigned(size, along_k, vector_bytes)
             ? operand_rows(lines, deep, along_k) * operand_raw_row(size, lines, deep, along_k)
             : multistage_tile_bytes(size, lines, deep, plain, along_k);
}
constexpr int operand_realigned_bytes(int size, int lines, int deep, bool plain, bool along_k, int vector_bytes) {
  return operand_realigned(size, along_k, vector_bytes) ? 2 * multistage_tile_bytes(size, lines, deep, plain, along_k)
                                                        : 0;
}
constexpr int operand_ring_bytes(int stages, int size, int lines, int deep, bool plain, bool along_k,
                                 int vector_bytes) {
  return stages * operand_stage_bytes(size, lines, deep, plain, along_k, vector_bytes) +
         operand_realigned_bytes(size, lines, deep, plain, along_k, vector_bytes);
}

// Results leave through a staging buffer of accumulators, in the place of the stages: one unit's rows of every warp at a time.
constexpr int multistage_staging_bytes(int warps_m, int columns) {
  return warps_m * multistage_unit_rows * columns * 4;
}
constexpr int multistage_larger(int a, int b) { return a > b ? a : b; }
constexpr int multistage_shared_bytes(int ring_bytes, int warps_m, int columns) {
  return multistage_larger(ring_bytes, multistage_staging_bytes(warps_m, columns));
}

}  // namespace tw
