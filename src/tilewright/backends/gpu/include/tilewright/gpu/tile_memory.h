// A tile of an operand in shared memory: rows of 16-byte chunks, the chunks of a row swapped about so
// that eight neighbouring rows keep the same chunk in eight different groups of banks.
#pragma once
#include <tilewright/gpu/multistage_memory.h>
#include <tilewright/gpu/types.h>

namespace tw {

// Lines are rows of A or columns of B.  AlongK: a row of the tile is a line; else it is one k of all lines.
template <class T, int Lines_, int Deep_, bool AlongK_> struct Tile {
  using Element = T;
  static constexpr int Lines = Lines_, Deep = Deep_;
  static constexpr bool AlongK = AlongK_;
  static constexpr int size = sizeof(T);
  static constexpr int rows = AlongK ? Lines : Deep, row_bytes = (AlongK ? Deep : Lines) * size,
                       chunks = row_bytes / 16;
  static constexpr int bytes = multistage_tile_bytes(size, Lines, Deep, false, false);
  static constexpr int group = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : chunks % 2 == 0 ? 2 : 1;
  static_assert(row_bytes % 16 == 0, "a row is whole chunks");

#ifdef TW_ON_GPU
  // What the chunk's number is crossed with; repeats every eight rows.
  static TW_GPU int cross(int row) {
    // Single four-byte elements of four rows are read at a time: two chunks of each.
    if constexpr (size == 4 && !AlongK) return row << 1 & (group - 1);
    else return (group == 8 ? row : group == 4 ? row >> 1 : row >> 2) & (group - 1);
  }
  static TW_GPU int at(int row, int chunk) { return row * row_bytes + ((chunk ^ cross(row)) << 4); }
  // An element by its line and k.
  static TW_GPU int element(int line, int k) {
    const int row = AlongK ? line : k, byte = (AlongK ? k : line) * size;
    return at(row, byte >> 4) + (byte & 15);
  }
#endif
};

// The same of floats that are multiplied one by one: a row of the tile is one k of all lines, so that what a
// thread multiplies lies side by side.  `Transposed` operands are written a float at a time, eight k of four lines
// by a warp: each k begins four banks further.
template <int Lines_, int Deep_, bool Transposed> struct PlainTile {
  static constexpr int Lines = Lines_, Deep = Deep_;
  static constexpr int row_bytes = plain_row_bytes(Lines, Transposed),
                       bytes = multistage_tile_bytes(4, Lines, Deep, true, Transposed);
  static_assert(Lines % 4 == 0, "a row is whole chunks");

#ifdef TW_ON_GPU
  static TW_GPU int at(int k, int chunk) { return k * row_bytes + chunk * 16; }
#endif
};

}  // namespace tw
