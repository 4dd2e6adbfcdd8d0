// How an operand of GEMM comes into LDS, of any layout, stride, size and address.
//
// Global memory takes accesses of 16 bytes at any address, so alignment changes nothing.  Lines beyond the matrix are
// never stored, so they may be anything: where lines lie along k, a thread reads the last line in their stead; where
// neighbours in memory are neighbouring lines, it reads those 16 bytes that end with the last line, and puts them where
// they belong.  What is left is read element by element: the last turn of a k that is no multiple of the tile's, and tiles
// with fewer lines than such an access has.
//
// Elements are converted on their way from registers to LDS where no instruction multiplies them as they are.
#pragma once
#include <tilewright/hip/element.h>
#include <tilewright/hip/staged.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// T: elements in memory; M: in LDS.  along_k: neighbours in memory are neighbours of k.
template <class T, class M, int lines, int deep, int threads, bool along_k> struct TileFetch {
  using Lines = StagedLines<M, deep, false>;
  static constexpr int most = 16 / int(sizeof(T));
  // Rows of k that a thread reads together, so that it writes whole words of a line.
  static constexpr int rows = along_k ? 1 : 4 / int(sizeof(M));
  static constexpr int share = lines * deep / (threads * rows), width = share < most ? share : most;
  static constexpr int pieces = (along_k ? deep : lines) / width, step = threads / pieces;
  static constexpr int count = (along_k ? lines : deep / rows) / step;
  static_assert(width > 0 && pieces <= threads && threads % pieces == 0 &&
                    step * count * rows == (along_k ? lines : deep),
                "threads do not share the tile out evenly");
  // What one access brings, as words: of arrays of elements the compiler would keep some in memory.
  static constexpr int bytes = width * int(sizeof(T)), word = bytes < 4 ? bytes : 4;
  typedef typename WordOf<word>::type Some __attribute__((ext_vector_type(bytes / word)));
  struct __attribute__((packed)) Anywhere {
    Some some;
  };
  struct Elements {
    T v[width];
  };

  const T *from;  // of this turn's first line and k
  int64_t stride;
  int inside;                     // lines of the tile that there are
  uint32_t offsets[count][rows];  // bytes
  int line;                       // along_k: the first; else where the thread's lines begin in the tile
  Some held[count][rows];

  // A thread's first row of memory, or run of rows, and its place in it.  Of rows that are k only `near` neighbours go to
  // neighbouring threads, and the next to the next k: eight lines further in LDS is the same bank.
  static constexpr int near = along_k ? pieces : pieces < 4 ? pieces : 4;
  static TW_GPU int own() { return int(threadIdx.x) / near % step; }
  static TW_GPU int beside() {
    return (int(threadIdx.x) % near + (along_k ? 0 : int(threadIdx.x) / (near * step) * near)) * width;
  }

  // `matrix` is the tile's first line; `first` its first k.
  TW_GPU TileFetch(const T *matrix, int64_t stride_, int inside_, int64_t first)
      : from(matrix + (along_k ? first : first * stride_)), stride(stride_), inside(inside_) {
    line = along_k ? own() : beside() < inside - width ? beside() : inside - width;
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const int one = (own() + i * step) * rows + r;
        const int down = along_k && one >= inside ? inside - 1 : one, right = along_k ? beside() : line < 0 ? 0 : line;
        offsets[i][r] = (uint32_t(down) * uint32_t(stride) + uint32_t(right)) * uint32_t(sizeof(T));
      }
  }
  // Whether a turn with so many k can be loaded: the same answer for every thread.
  TW_GPU bool whole(int left) const { return left >= deep && (along_k || inside >= width); }

  TW_GPU void load() {
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int r = 0; r < rows; ++r)
        held[i][r] = reinterpret_cast<const Anywhere *>(reinterpret_cast<const char *>(from) + offsets[i][r])->some;
  }
  TW_GPU void next() { from += along_k ? int64_t(deep) : deep * stride; }
  TW_GPU void put(M *to) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (along_k) put_line(to, own() + i * step, held[i][0]);
      else put_words(to, (own() + i * step) * rows, held[i]);
    }
  }
  // Element by element, zeros where there is nothing.
  TW_GPU void copy(M *to, int left) const {
    constexpr int across = along_k ? deep : lines;
#pragma clang loop unroll_count(4)
    for (int at = threadIdx.x; at < lines * deep; at += threads) {
      const int one = along_k ? at / across : at % across, k = along_k ? at % across : at / across;
      const bool there = one < inside && k < left;
      const T x = from[there ? (along_k ? one * stride + k : k * stride + one) : 0];
      to[Lines::at(one, k)] = there ? converted<M>(x) : M{};
    }
  }

 private:
  static TW_GPU void put_line(M *to, int one, Some held_) {
    constexpr int together = width < Lines::piece ? width : Lines::piece;
    if constexpr (std::is_same_v<T,
                                 M>) {  // words stay words: of single bytes the compiler would put them together again
      typedef typename WordOf<word>::type Piece __attribute__((ext_vector_type(together * int(sizeof(M)) / word)));
      struct Pieces {
        Piece v[width / together];
      };
      const Pieces some = __builtin_bit_cast(Pieces, held_);
#pragma unroll
      for (int j = 0; j < width; j += together)
        *reinterpret_cast<Piece *>(to + Lines::at(one, beside() + j)) = some.v[j / together];
    } else {
      const Elements some = __builtin_bit_cast(Elements, held_);
      struct alignas(together * sizeof(M)) Piece {
        M v[together];
      };
#pragma unroll
      for (int j = 0; j < width; j += together) {
        Piece piece;
#pragma unroll
        for (int i = 0; i < together; ++i) piece.v[i] = converted<M>(some.v[j + i]);
        *reinterpret_cast<Piece *>(to + Lines::at(one, beside() + j)) = piece;
      }
    }
  }
  TW_GPU void put_words(M *to, int k, const Some (&held_)[rows]) const {
    Elements some[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) some[r] = __builtin_bit_cast(Elements, held_[r]);
    struct alignas(4) Neighbours {
      M v[rows];
    };
#pragma unroll
    for (int j = 0; j < width; ++j) {
      Neighbours word;
#pragma unroll
      for (int r = 0; r < rows; ++r) word.v[r] = converted<M>(some[r].v[j]);
      *reinterpret_cast<Neighbours *>(to + Lines::at(line + j, k)) = word;
    }
  }
};

}  // namespace tw::hip
#endif
