// One thread's part in bringing an operand of plain floats (multiplied one by one) into shared memory: like Fetch, but
// a stage is copied in parts, between multiplications, without a branch in between.
#pragma once
#include <tilewright/gpu/multistage_shape.h>

#ifdef TW_ON_GPU
namespace tw {

// Goes along k, a tile at a time.  Beyond the matrix and beyond its split of k everything is zero, and nothing is read.
template <class O, int Threads> struct PlainFetch {
  static constexpr int step = Threads / O::pieces, count = (O::rows + step - 1) / step;  // rows of one thread
  static constexpr bool whole = O::rows % step == 0;
  static constexpr int each = O::single ? O::Deep / 8 : 1;  // pieces of a row, 8 k apart
  const char *from, *at;                                    // this thread's first piece in the stage; the next one
  long long apart;                                          // bytes from row to row
  int row, place;                                           // of the first piece in the stage
  int rows, bytes;  // left: rows from `row` on, bytes of a row from the piece on (not single: of the piece)

  // `line` is the tile's first row of A or column of B, `k` the first of the traversal, `deep` where it ends.
  TW_GPU PlainFetch(const void *matrix, long long stride, int lines, int deep, int line, int k) {
    const int thread = thread_index(), column = thread % O::pieces * O::piece;
    row = thread / O::pieces;
    apart = stride * 4;
    const int row0 = O::single ? line : k, x0 = O::single ? k : line;
    rows = (O::single ? lines - line : deep - k) - row;
    bytes = ((O::single ? deep : lines) - x0) * 4 - column;
    if constexpr (!O::single) bytes = bytes < 0 ? 0 : bytes < O::piece ? bytes : O::piece;
    from = static_cast<const char *>(matrix) + (row0 + row) * apart + x0 * 4ll + column;
    place = O::single ? O::Place::at(column / 4, 0) + row * 4 : O::Place::at(row, 0) + column;
  }

  TW_GPU void next() {
    from += O::single ? O::width : O::Deep * apart;
    if constexpr (O::single) bytes -= O::width;
    else rows -= O::Deep;
  }

  // One of `Parts` parts of a stage, the first one first; `to` is its place.
  template <int Part, int Parts> TW_GPU void part(char *to) {
    constexpr int first = count * Part / Parts, last = count * (Part + 1) / Parts;
    if constexpr (Part == 0) at = from;
#pragma unroll
    for (int i = first; i < last; ++i) {
      if (!whole && row + i * step >= O::rows) break;
      const bool there = i * step < rows;
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const int valid = !O::single ? (there ? bytes : 0) : there && j * 32 < bytes ? 4 : 0;
        copy_async<O::piece>(
            to + place + (O::single ? i * step * 4 + O::Place::at(j * 8, 0) : O::Place::at(i * step, 0)), at + j * 32,
            valid);
      }
      at += step * apart;
    }
  }
};

}  // namespace tw
#endif
