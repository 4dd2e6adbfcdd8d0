// How rows of q, k and v come into LDS, of any stride, size of head and address.
//
// Global memory takes accesses of 16 bytes at any address, so alignment changes nothing.  A head that is no whole such
// accesses ends with a few elements that are read one by one.  Elements are converted on their way from registers to LDS
// where no instruction multiplies them as they are.
//
// `me` is the thread: whoever hides its number from the compiler keeps it from holding places between two fetches.
//
// Places are given by `at(line, d)`: where elements of a row from d on lie, for lines that may be beyond the last.
#pragma once
#include <tilewright/hip/element.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// 16 bytes of memory that may lie anywhere, as words: of arrays of elements the compiler would keep some in memory.
typedef uint32_t FetchedWords __attribute__((ext_vector_type(4)));
struct __attribute__((packed)) FetchedAnywhere {
  FetchedWords words;
};
template <class T> TW_GPU FetchedWords fetched(const T *at) {
  return reinterpret_cast<const FetchedAnywhere *>(at)->words;
}
template <class T> struct FetchedElements {
  T v[16 / sizeof(T)];
};
// Bytes are taken out of words where they are converted and not before: each would have a register of its own.
template <class T> TW_GPU FetchedElements<T> elements_of(FetchedWords words) {
#if !defined(__gfx1250__)
  if constexpr (sizeof(T) == 1) asm volatile("" : "+v"(words));
#endif
  return __builtin_bit_cast(FetchedElements<T>, words);
}

// Lines of LDS lie 16 bytes apart, so that 16 of them that are read at one place meet in no bank.
template <class M, int deep> struct HeadLines {
  static constexpr int piece = 16 / int(sizeof(M)), row = deep + piece;
  static_assert(deep % piece == 0, "a line is whole pieces of 16 bytes");
  static TW_GPU int at(int line, int k) { return line * row + k; }
};

// What a lane holds of a line in LDS, in one access or more.
template <class Fragment, class M> TW_GPU Fragment fragment(const M *at) {
  constexpr int width = sizeof(Fragment) < 16 ? int(sizeof(Fragment)) : 16;
  struct alignas(width) Piece {
    char bytes[width];
  };
  struct All {
    Piece piece[sizeof(Fragment) / width];
  } all;
#pragma unroll
  for (int i = 0; i < int(sizeof(Fragment)) / width; ++i) all.piece[i] = reinterpret_cast<const Piece *>(at)[i];
  return __builtin_bit_cast(Fragment, all);
}

// Rows of q or k: a line of LDS is a row's head, zeros behind its last element.
template <class T, class M, int lines, int deep, int threads> struct RowFetch {
  using Lines = HeadLines<M, deep>;
  static constexpr int width = 16 / int(sizeof(T)), pieces = deep / width, all = lines * pieces;
  static constexpr int count = (all + threads - 1) / threads;
  static_assert(deep % width == 0, "a head is whole accesses");
  FetchedWords held[count];
  int me = int(threadIdx.x);

  TW_GPU int index(int i) const { return me + i * threads; }
  TW_GPU bool own(int i) const { return all % threads == 0 || index(i) < all; }

  template <class At> TW_GPU void load(const At &at, int head) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int line = own(i) ? index(i) / pieces : 0, d = index(i) % pieces * width;
      const bool whole = d + width <= head;
      held[i] = FetchedWords{};
      if (head >= width) {
        const FetchedWords some = fetched(at(line, whole ? d : 0));
        held[i] = whole ? some : FetchedWords{};
      }
    }
  }
  template <class At> TW_GPU void put(M *to, const At &at, int head) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int line = index(i) / pieces, d = index(i) % pieces * width;
      if (own(i) && (d >= head || d + width <= head)) put_piece(to + Lines::at(line, d), held[i]);
      if constexpr (!std::is_same_v<M, T>) __builtin_amdgcn_sched_barrier(0);  // one after the other: registers are few
    }
    if (head % width) ends(to, at, head);
  }

 private:
  static TW_GPU void put_piece(M *to, FetchedWords words) {
    const auto some = elements_of<T>(words);
    struct alignas(16) Piece {
      M v[Lines::piece];
    };
#pragma unroll
    for (int j = 0; j < width; j += Lines::piece) {
      Piece piece;
#pragma unroll
      for (int i = 0; i < Lines::piece; ++i) piece.v[i] = converted<M>(some.v[j + i]);
      *reinterpret_cast<Piece *>(to + j) = piece;
    }
  }
  // The last access of each row, which is not whole.
  template <class At> static TW_GPU void ends(M *to, const At &at, int head) {
    const int first = head / width * width;
#pragma clang loop unroll(disable)
    for (int i = threadIdx.x; i < lines * width; i += threads) {
      const int line = i / width, d = first + i % width;
      to[Lines::at(line, d)] = d < head ? converted<M>(*at(line, d)) : M{};
    }
  }
};

// Rows of v, transposed: a line of LDS is an element of the heads, and has the keys side by side, in an order that `place`
// says.  Lines behind the last element of a head are never stored, so they may be anything.
template <class T, class M, int keys, int deep, int threads, class Order> struct TransposedFetch {
  using Lines = HeadLines<M, keys>;
  static constexpr int width = 16 / int(sizeof(T)), pieces = deep / width;
  static constexpr int rows = 4 / int(sizeof(M));  // keys that a thread reads together, so that it writes whole words
  static constexpr int runs = keys / rows, all = runs * pieces, count = (all + threads - 1) / threads;
  // Only `near` neighbours of a row go to neighbouring threads, the next to the next keys: eight lines further in LDS is
  // the same bank.
  static constexpr int near = pieces % 4 == 0 ? 4 : pieces % 2 == 0 ? 2 : 1;
  static_assert(deep % width == 0 && keys % rows == 0, "a head is whole accesses");
  FetchedWords held[count][rows];
  int me = int(threadIdx.x);

  TW_GPU int index(int i) const { return me + i * threads; }
  TW_GPU bool own(int i) const { return all % threads == 0 || index(i) < all; }
  TW_GPU int key_of(int i) const { return index(i) / near % runs * rows; }
  TW_GPU int element_of(int i) const { return (index(i) % near + index(i) / (near * runs) * near) * width; }

  template <class At> TW_GPU void load(const At &at, int head) {
    if (head < width) return;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int d = element_of(i);
#pragma unroll
      for (int r = 0; r < rows; ++r) held[i][r] = fetched(at(key_of(i) + r, d + width <= head ? d : 0));
    }
  }
  template <class At> TW_GPU void put(M *to, const At &at, int head) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (own(i) && element_of(i) + width <= head) put_words(to, Order::place(key_of(i)), element_of(i), held[i]);
      if constexpr (!std::is_same_v<M, T>) __builtin_amdgcn_sched_barrier(0);
    }
    if (head % width) ends(to, at, head);
  }

 private:
  static TW_GPU void put_words(M *to, int place, int line, const FetchedWords (&words)[rows]) {
    FetchedElements<T> some[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) some[r] = elements_of<T>(words[r]);
    struct alignas(4) Neighbours {
      M v[rows];
    };
#pragma unroll
    for (int j = 0; j < width; ++j) {
      Neighbours word;
#pragma unroll
      for (int r = 0; r < rows; ++r) word.v[r] = converted<M>(some[r].v[j]);
      *reinterpret_cast<Neighbours *>(to + Lines::at(line + j, place)) = word;
    }
  }
  template <class At> static TW_GPU void ends(M *to, const At &at, int head) {
    const int first = head / width * width;
#pragma clang loop unroll(disable)
    for (int i = threadIdx.x; i < keys * width; i += threads) {
      const int key = i / width, d = first + i % width;
      if (d < head) to[Lines::at(d, Order::place(key))] = converted<M>(*at(key, d));
    }
  }
};

// Rows of v in vectorised pages, where some keys of an element of the heads lie side by side, as they do in LDS.  What lies
// behind the last key may be anything, and becomes zero.
template <class T, class M, int keys, int deep, int threads, class Order> struct VectorFetch {
  using Lines = HeadLines<M, keys>;
  static constexpr int width = 16 / int(sizeof(T)), all = keys / width * deep, count = (all + threads - 1) / threads;
  static constexpr int together = 4;  // keys that lie side by side in any order
  static_assert(keys % width == 0 && width % together == 0, "a tile is whole vectors");
  FetchedWords held[count];
  int me = int(threadIdx.x);

  TW_GPU int index(int i) const { return me + i * threads; }
  TW_GPU bool own(int i, int head) const { return (all % threads == 0 || index(i) < all) && index(i) % deep < head; }
  TW_GPU int key_of(int i) const { return index(i) / deep * width; }

  template <class At> TW_GPU void load(const At &at, int head) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int d = index(i) % deep, key = key_of(i) < at.count() ? key_of(i) : (at.count() - 1) / width * width;
      held[i] = fetched(at(key, d < head ? d : 0));
    }
  }
  template <class At> TW_GPU void put(M *to, const At &at, int head) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!own(i, head)) continue;
      const auto some = elements_of<T>(held[i]);
      struct alignas(together * sizeof(M)) Piece {
        M v[together];
      };
#pragma unroll
      for (int j = 0; j < width; j += together) {
        Piece piece;
#pragma unroll
        for (int e = 0; e < together; ++e)
          piece.v[e] = key_of(i) + j + e < at.count() ? converted<M>(some.v[j + e]) : M{};
        *reinterpret_cast<Piece *>(to + Lines::at(index(i) % deep, Order::place(key_of(i) + j))) = piece;
      }
    }
  }
};

}  // namespace tw::hip
#endif
