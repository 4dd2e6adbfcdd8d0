// A product of tiles that lie in LDS, and the epilogue store of its accumulators through LDS: what kernels of our own share.
#pragma once
#include <tilewright/hip/store_modes.h>
#include <tilewright/hip/matrix.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// Lines of an operand in LDS, 16 bytes apart, so that 16 of them that are read at one k meet in no bank.  `crossed`: pieces
// of 16 bytes change places from eight lines to the next eight, so that lanes that write a k of theirs each do not all
// meet in one bank; every place has an address of its own then, where else one and a constant do.
template <class T, int deep, bool crossed> struct StagedLines {
  static constexpr int piece = 16 / int(sizeof(T)), pieces = deep / piece, row = deep + piece;
  static_assert(deep % piece == 0 && (pieces & (pieces - 1)) == 0, "a line is not 2^n pieces of 16 bytes");
  static TW_GPU int at(int line, int k) {
    return line * row + (crossed ? k ^ ((line >> 3 & (pieces - 1)) * piece) : k);
  }
};

// The product by matrix instructions.  A wave has every warp_grid'th 16 lines of either operand.
template <class Config, class A, class B, bool crossed> struct MatrixProduct {
  using Unit = Matrix<A, B, Config::tile_k>;
  static constexpr int side = Unit::side, wave = Unit::wave;
  static constexpr int repeat_m = Config::tile_m / (Config::warp_grid_m * side),
                       repeat_n = Config::tile_n / (Config::warp_grid_n * side);
  static constexpr int turns = repeat_m, band = Config::warp_grid_m * side;  // rows of the tile that leave together
  static constexpr int row = Config::tile_n + 4;
  typename Unit::Accumulators accum[repeat_m][repeat_n] = {};

  static TW_GPU int wave_m() { return int(threadIdx.x) / wave / Config::warp_grid_n; }
  static TW_GPU int wave_n() { return int(threadIdx.x) / wave % Config::warp_grid_n; }
  static TW_GPU int lane() { return int(threadIdx.x) % wave; }

  template <class T> static TW_GPU typename Unit::Lines fragment(const T *from, int first, int k) {
    using Lines = StagedLines<T, Config::tile_k, crossed>;
    constexpr int width = Lines::piece < Unit::held ? Lines::piece : Unit::held;  // of one load
    struct alignas(width * sizeof(T)) Piece {
      T v[width];
    };
    struct All {
      Piece piece[Unit::held / width];
    } all;
    k += Unit::first(lane());
#pragma unroll
    for (int i = 0; i < Unit::held / width; ++i)
      all.piece[i] = *reinterpret_cast<const Piece *>(from + Lines::at(first + Unit::line(lane()), k + i * width));
    return __builtin_bit_cast(typename Unit::Lines, all);
  }
  struct Fragments {
    typename Unit::Lines a[repeat_m], b[repeat_n];
    TW_GPU Fragments(const A *from_a, const B *from_b, int k) {
#pragma unroll
      for (int j = 0; j < repeat_n; ++j) b[j] = fragment(from_b, (j * Config::warp_grid_n + wave_n()) * side, k);
#pragma unroll
      for (int i = 0; i < repeat_m; ++i) a[i] = fragment(from_a, (i * Config::warp_grid_m + wave_m()) * side, k);
    }
  };
  // Written out, the compiler reads fragments of all k-blocks at once; it may, where there are registers for them.
  static constexpr int steps = Config::tile_k / Unit::k, words = (repeat_m + repeat_n) * Unit::bytes / 4;
  static constexpr bool at_once = steps * words <= 64;
  TW_GPU void multiply(const A *a, const B *b) {
    if constexpr (at_once) {
#pragma unroll
      for (int k = 0; k < Config::tile_k; k += Unit::k) multiply(Fragments(a, b, k));
    } else {
#pragma clang loop unroll(disable)
      for (int k = 0; k < Config::tile_k; k += Unit::k) multiply(Fragments(a, b, k));
    }
  }
  TW_GPU void multiply(const Fragments &f) {
#pragma unroll
    for (int i = 0; i < repeat_m; ++i)
#pragma unroll
      for (int j = 0; j < repeat_n; ++j) Unit::multiply(f.a[i], f.b[j], accum[i][j]);
  }
  // Accumulators of a turn, which are neighbouring rows of the tile.
  struct Band {
    typename Unit::Accumulators v[repeat_n];
  };
  template <int turn> TW_GPU Band taken() const {
    Band some;
#pragma unroll
    for (int j = 0; j < repeat_n; ++j) some.v[j] = accum[turn][j];
    return some;
  }
  static TW_GPU void put(const Band &some, typename Config::Acc *to) {
#pragma unroll
    for (int j = 0; j < repeat_n; ++j)
#pragma unroll
      for (int i = 0; i < Unit::accum; ++i)
        to[(wave_m() * side + Unit::row(lane(), i)) * row + (j * Config::warp_grid_n + wave_n()) * side +
           Unit::column(lane())] = some.v[j][i];
  }
};

// Where a tile lies in the result: its matrix of a batch (or group), its first row and column, and where rows end.
struct StagedTile {
  int64_t z;
  int m, n, rows;
};

// The accumulators of a product, a band of rows at a time, through LDS: `out` gets `width` neighbours of a row.
template <class Config, int width, class Product, class Out> struct StagedStore {
  using Sum = typename Config::Acc;
  static TW_GPU void all(const StagedTile &at, const Product &product, const Out &out, Sum *accum) {
    // What is fused is long, and written once so.
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < Product::turns; ++turn) {
      Product::put(taken(turn, product, std::make_integer_sequence<int, Product::turns>()), accum);
      __syncthreads();
      away(at, turn * Product::band, out, accum);
      __syncthreads();
    }
  }

 private:
  // Values are chosen among, never places: an index that is not known would keep accumulators in memory.
  template <int... each>
  static TW_GPU typename Product::Band taken(int turn, const Product &product, std::integer_sequence<int, each...>) {
    auto some = product.template taken<0>();
    (choose(turn == each, product.template taken<each>(), some), ...);
    return some;
  }
  static TW_GPU void choose(bool yes, const typename Product::Band &these, typename Product::Band &some) {
    if (yes) some = these;
  }
  static TW_GPU void away(const StagedTile &at, int down, const Out &out, const Sum *accum) {
    constexpr int pieces = Config::tile_n / width;
#pragma clang loop unroll(disable)
    for (int piece = threadIdx.x; piece < Product::band * pieces; piece += Config::threads) {
      const int row = piece / pieces, column = piece % pieces * width;
      if (at.m + down + row >= at.rows) continue;
      Sum some[width];
#pragma unroll
      for (int i = 0; i < width; ++i) some[i] = accum[row * Product::row + column + i];
      out(some, at.z, at.m + down + row, at.n + column);
    }
  }
};

}  // namespace tw::hip
#endif
