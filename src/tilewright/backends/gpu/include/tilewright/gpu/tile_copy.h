// One thread's part in bringing an operand into shared memory: the copies of a stage, and where they
// need it, the pass that moves them into place.
#pragma once
#include <tilewright/gpu/multistage_shape.h>

#ifdef TW_ON_GPU
namespace tw {

TW_GPU int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// Goes along k, a tile at each call.  Outside the matrix everything is zero, and nothing is read that
// lies before its first byte or behind the last of its row.
template <class O, int Threads> struct Fetch {
  static constexpr int step = Threads / O::pieces, count = (O::rows + step - 1) / step;  // rows of one thread
  static constexpr bool whole = O::rows % step == 0, shifted = O::realigned && O::Vector < 16;
  const char *from;   // this thread's first piece in this stage
  const char *more;   // behind the row of the thread's number
  const char *first;  // the matrix's first byte
  long long apart;    // bytes from row to row
  int row, column;    // of the first piece in the stage
  int rows, bytes;    // left in the matrix: rows from `row` on, bytes of a row from the piece on

  // `line` is the tile's first row of A or column of B, `k` the first of the traversal, `deep` the matrix's k.
  TW_GPU Fetch(const void *matrix, long long stride, int lines, int deep, int line, int k) {
    const int thread = thread_index();
    row = thread / O::pieces;
    column = thread % O::pieces * O::piece;
    first = static_cast<const char *>(matrix);
    apart = stride * O::size;
    const int row0 = O::KContiguous ? line : k, x0 = O::KContiguous ? k : line;
    rows = (O::KContiguous ? lines - line : deep - k) - row;
    bytes = ((O::KContiguous ? deep : lines) - x0) * O::size - column;
    from = first + (row0 + row) * apart + (long long)x0 * O::size + column;
    if constexpr (shifted) more = from + (thread - row) * apart + (O::width - column);
  }

  TW_GPU void next() {
    const long long by = O::KContiguous ? O::width : O::Deep * apart;
    from += by;
    if constexpr (shifted) more += by;
    if constexpr (O::KContiguous) bytes -= O::width;
    else rows -= O::Deep;
  }

  // A whole stage; `to` is its place.  Only the first one of a traversal can hold the matrix's first word.
  template <bool First> TW_GPU void stage(char *to) const {
    const char *at = from;  // stepped, not multiplied: the multiples would all be kept in registers
#pragma unroll
    for (int i = 0; i < count; ++i, at += step * apart) {
      if (!whole && row + i * step >= O::rows) break;
      const bool there = i * step < rows;
      if constexpr (O::realigned) {
        raw<First>(to + (row + i * step) * O::raw_row + column, at, there);
      } else {
        const int chunk = column / 16, inside = column % 16;
        copy_async<O::piece>(to + O::Place::at(row + i * step, chunk) + inside, at,
                             there ? clamp(bytes, 0, O::piece) : 0);
      }
    }
    if constexpr (shifted) {  // one word more behind each row that is not aligned
      const char *word = more;
#pragma unroll
      for (int i = 0; i < (O::rows + Threads - 1) / Threads; ++i, word += Threads * apart) {
        const int r = thread_index() + i * Threads;
        if (O::rows % Threads && r >= O::rows) break;
        const int shift = int(reinterpret_cast<uintptr_t>(word) & 15), left = bytes + column - O::width + shift;
        copy_async<16>(to + r * O::raw_row + O::width, word - shift, shift && r - row < rows ? clamp(left, 0, 16) : 0);
      }
      if constexpr (First) heads(to);
    }
  }

 private:
  // The aligned word that holds `at`: it may hold the end of a row that is over there.
  template <bool First> TW_GPU void raw(char *to, const char *at, bool there) const {
    const int shift = shifted ? int(reinterpret_cast<uintptr_t>(at) & 15) : 0;
    const char *word = at - shift;
    copy_async<16>(to, word, !there || (First && word < first) ? 0 : clamp(bytes + shift, 0, 16));
  }
  // Words that begin before the matrix, byte for byte: the first of its first rows (short ones share a word).
  TW_GPU void heads(char *to) const {
    if (column != 0) return;
#pragma unroll 1
    for (int i = 0; i < count && row + i * step < O::rows && i * step < rows; ++i) {
      const char *at = from + i * step * apart, *word = at - (reinterpret_cast<uintptr_t>(at) & 15);
      if (word >= first) return;
      commit_copies();
      wait_copies<0>();  // zeros went there
#pragma unroll 1
      for (const char *byte = first; byte < word + 16 && byte < at + bytes; ++byte)
        store_shared(to + (row + i * step) * O::raw_row + (byte - word), uint8_t(*byte));
    }
  }
};

// Moves a raw stage into place, in `Parts` parts (each by all threads), so that it can be done between
// multiplications.
template <class O, int Threads> struct Realign {
  int low, apart;  // of the matrix's address and of a row, in bytes, to 16

  TW_GPU Realign(const void *matrix, long long stride)
      : low(int(reinterpret_cast<uintptr_t>(matrix) & 15)), apart(int(stride * O::size & 15)) {}

  // Every tile begins at a multiple of 16 rows and 16 bytes: only the row inside it matters.
  TW_GPU int shift(int row) const { return O::Vector < 16 ? (low + row * apart) & 15 : 0; }

  // A run of chunks of one row; neighbouring threads take neighbouring rows.
  static constexpr int chunks = O::width / 16, pieces = O::rows * chunks;
  static constexpr int run = chunks % 2 == 0 && pieces / 2 >= Threads ? 2 : 1;
  static constexpr int jobs = O::transposed ? (O::Lines / 4) * (O::Deep / 16) : pieces / run;
  static constexpr int turns = (jobs + Threads - 1) / Threads;

  template <int Part, int Parts> TW_GPU void part(const char *raw, char *to) const {
    const int thread = thread_index();
#pragma unroll
    for (int i = Part; i < turns; i += Parts) {
      const int job = thread + i * Threads;
      if (jobs % Threads && job >= jobs) break;
      if constexpr (O::transposed) turn(raw, to, job);
      else move(raw, to, job % O::rows, job / O::rows * run);
    }
  }

 private:
  TW_GPU void move(const char *raw, char *to, int row, int chunk) const {
    const int by = shift(row);
    uint32_t w[4 * run + 4];
#pragma unroll
    for (int j = 0; j <= run; ++j) {
      const Word16 word = load_shared<Word16>(raw + row * O::raw_row + (chunk + j) * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) w[j * 4 + i] = word.w[i];
    }
#pragma unroll
    for (int i = 0; i < 4 * run + 2; ++i) w[i] = by & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 4 * run + 1; ++i) w[i] = by & 4 ? w[i + 1] : w[i];
#pragma unroll
    for (int j = 0; j < run; ++j) {
      Word16 word;
#pragma unroll
      for (int i = 0; i < 4; ++i) word.w[i] = funnel(w[j * 4 + i], w[j * 4 + i + 1], (by & 3) * 8);
      store_shared(to + O::Place::at(row, chunk + j), word);
    }
  }

  // Four lines by 16 k: rows of the raw stage are k, those of the tile lines.
  TW_GPU void turn(const char *raw, char *to, int job) const {
    constexpr int across = O::Lines / 4;
    const int line = job % across * 4, chunk = job / across;
    Word16 out[4];
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = chunk * 16 + four * 4 + i, byte = line + shift(row);
        const char *at = raw + row * O::raw_row + (byte & ~3);
        const uint32_t word = load_shared<uint32_t>(at);
        w[i] = O::Vector < 4 ? funnel(word, load_shared<uint32_t>(at + 4), (byte & 3) * 8) : word;
      }
      // Bytes 0 and 1 of two words side by side, then of two such pairs.
      const uint32_t low0 = permute(w[0], w[1], 0x5140), low1 = permute(w[2], w[3], 0x5140);
      const uint32_t high0 = permute(w[0], w[1], 0x7362), high1 = permute(w[2], w[3], 0x7362);
      out[0].w[four] = permute(low0, low1, 0x5410), out[1].w[four] = permute(low0, low1, 0x7632);
      out[2].w[four] = permute(high0, high1, 0x5410), out[3].w[four] = permute(high0, high1, 0x7632);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) store_shared(to + O::Place::at(line + i, chunk), out[i]);
  }
};

}  // namespace tw
#endif
