// Shared memory of gather kernels, in bytes, and how an operand comes there.  Python reads this text too
// (backends/constexpr.py).
#pragma once
#include <tilewright/gpu/multistage_memory.h>

namespace tw {

constexpr int gather_strides = 8;  // of backward_data, along an axis, at most
constexpr int gather_bits = 30;    // one for each tap of each axis
constexpr int gather_ahead = 8;    // k-blocks whose k are worked out together, as many ahead

// Element by element, which no copy can; then through registers, as are vectors of floats that are transposed there.
constexpr bool gather_single(int vector_bytes) { return vector_bytes < 4; }
constexpr bool gather_transposed(bool plain, bool along_k, int vector_bytes) {
  return plain && along_k && vector_bytes > 4;
}
constexpr bool gather_held(bool plain, bool along_k, int vector_bytes) {
  return gather_single(vector_bytes) || gather_transposed(plain, along_k, vector_bytes);
}
// A piece: k and lines it has, and how many of them lie side by side along the axis that threads follow.
constexpr int gather_piece_k(int size, bool along_k, int vector_bytes) {
  return gather_single(vector_bytes) ? 4 / size : along_k ? vector_bytes / size : 1;
}
constexpr int gather_piece_lines(int size, bool along_k, int vector_bytes) {
  return gather_single(vector_bytes) || along_k ? 1 : vector_bytes / size;
}
constexpr int gather_across(int size, int lines, int deep, bool plain, bool along_k, int vector_bytes) {
  return !along_k ? lines / gather_piece_lines(size, along_k, vector_bytes)
         : plain && !gather_transposed(plain, along_k, vector_bytes)
             ? 8
             : deep / gather_piece_k(size, along_k, vector_bytes);
}
// k that one entry of the table says all of.
constexpr int gather_grain(int size, bool along_k, int vector_bytes) {
  return gather_single(vector_bytes) ? 1 : gather_piece_k(size, along_k, vector_bytes);
}

// Behind the stages, or the staging buffer of accumulators in their place: what each k says, of A and of B; what lines say; where rows and
// columns of results lie.
constexpr int gather_table_bytes(int tile_k, int grain) { return 2 * gather_ahead * (tile_k / grain) * 16; }
constexpr int gather_line_bytes(int tile_m, int tile_n) { return (tile_m + tile_n) * 8; }
constexpr int gather_row_bytes(int num_d) { return 4 + 8 * num_d; }
constexpr int gather_shared_bytes(int rows_at, int tile_m, int tile_n, int num_d) {
  return rows_at + tile_m * gather_row_bytes(num_d) + tile_n * 4;
}

}  // namespace tw
