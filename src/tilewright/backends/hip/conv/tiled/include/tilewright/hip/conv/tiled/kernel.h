// A convolution where CK Tile's headers have no product: by WMMA on RDNA 3 and 4, by MFMA on CDNA, by multiply-adds
// anywhere.
//
// A block stages tile_m lines of A and tile_n lines of B, tile_k deep, in LDS, k along the rows.  While it multiplies them,
// its lanes already hold what comes next.  Matrix instructions (matrix.h) compute 16 x 16 accumulators per wave; what a GPU has
// no such instruction for is multiplied by multiply-adds, of which a lane has a square of lines.  Operands, classes of
// pixels, merged groups, splits of k and the way out are those of the CK Tile kernels.
#pragma once
#include <tilewright/hip/conv/maps.h>
#include <tilewright/hip/staged.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// A thread's part in bringing an operand there.  `along_k`: rows of the map are lines and columns k, else the other way.
template <class Map, int lines, int deep, int threads, int width, bool along_k> struct StagedFetch {
  using T = typename Map::Element;
  using Lines = StagedLines<T, deep, true>;
  static constexpr int rows = along_k ? lines : deep, pieces = (along_k ? deep : lines) / width;
  static constexpr int step = threads / pieces, count = rows / step;
  static_assert(threads % pieces == 0 && rows % step == 0, "threads do not share the tile out evenly");

  Map map;
  int row, column;  // of the first piece
  typename Map::Row places[count];
  typename Map::Column place;
  typename Bytes<T>::template Some<width> held[count];

  TW_GPU StagedFetch(const Map &from, int line, int k) : map(from) {
    row = (along_k ? line : k) + own_row(), column = (along_k ? k : line) + own_column();
    find_rows(), place = map.column(column);
  }
  static TW_GPU int own_row() { return int(threadIdx.x) / pieces; }
  static TW_GPU int own_column() { return int(threadIdx.x) % pieces * width; }

  TW_GPU void load() {
#pragma unroll
    for (int i = 0; i < count; ++i) held[i] = map.memory.template load<width>(map.at(places[i], place));
  }
  TW_GPU void next() {
    if constexpr (along_k) column += deep, place = map.column(column);
    else row += deep, find_rows();
  }
  TW_GPU void put(T *to) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int one = own_row() + i * step;
      if constexpr (along_k) {
        struct alignas(width * sizeof(T)) Whole {
          typename Bytes<T>::template Some<width> some;
        };
        reinterpret_cast<Whole *>(to + Lines::at(one, own_column()))->some = held[i];
      } else {
#pragma unroll
        for (int j = 0; j < width; ++j) to[Lines::at(own_column() + j, one)] = held[i].v[j];
      }
    }
  }

 private:
  TW_GPU void find_rows() {
#pragma unroll
    for (int i = 0; i < count; ++i) places[i] = map.row(row + i * step);
  }
};

// The product by multiply-adds: a thread has every 16th line of B, and as far apart ones of A.
template <class Config, class T> struct FmaProduct {
  using Sum = typename Config::Acc;
  static constexpr int across = 16, down = Config::threads / across;
  static constexpr int each_m = Config::tile_m / down, each_n = Config::tile_n / across;
  static constexpr int turns = each_m, band = down, row = Config::tile_n + 4;
  using Lines = StagedLines<T, Config::tile_k, true>;
  static constexpr int width = Lines::piece < 4 ? Lines::piece : 4;  // deep, of one k-block
  Sum accum[each_m][each_n] = {};

  static TW_GPU int x() { return int(threadIdx.x) % across; }
  static TW_GPU int y() { return int(threadIdx.x) / across; }
  struct Piece {
    Sum v[width];
  };
  static TW_GPU Piece piece(const T *from, int line, int k) {
    struct alignas(width * sizeof(T)) Whole {
      T v[width];
    };
    const Whole whole = *reinterpret_cast<const Whole *>(from + Lines::at(line, k));
    Piece found;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if constexpr (is_integer<T>::value) found.v[i] = Sum(whole.v[i]);
      else found.v[i] = to_float(whole.v[i]);
    }
    return found;
  }
  TW_GPU void multiply(const T *a, const T *b) {
    // Unrolled, the compiler would read all of the stage at once, and spill.
#pragma clang loop unroll(disable)
    for (int k = 0; k < Config::tile_k; k += width) {
      Piece of_b[each_n];
#pragma unroll
      for (int j = 0; j < each_n; ++j) of_b[j] = piece(b, j * across + x(), k);
#pragma unroll
      for (int i = 0; i < each_m; ++i) {
        const Piece of_a = piece(a, i * down + y(), k);
#pragma unroll
        for (int j = 0; j < each_n; ++j)
#pragma unroll
          for (int one = 0; one < width; ++one) add(accum[i][j], of_a.v[one], of_b[j].v[one]);
      }
    }
  }
  struct Band {
    Sum v[each_n];
  };
  template <int turn> TW_GPU Band taken() const {
    Band some;
#pragma unroll
    for (int j = 0; j < each_n; ++j) some.v[j] = accum[turn][j];
    return some;
  }
  static TW_GPU void put(const Band &some, Sum *to) {
#pragma unroll
    for (int j = 0; j < each_n; ++j) to[y() * row + j * across + x()] = some.v[j];
  }

 private:
  static TW_GPU void add(Sum &sum, Sum a, Sum b) {
    if constexpr (is_integer<T>::value) sum = Sum(uint32_t(sum) + uint32_t(a * b));
    else sum = __builtin_fmaf(a, b, sum);
  }
};

template <class Config> struct ConvDevice : ConvOperands<Config> {
  using Operands = ConvOperands<Config>;
  using Operands::dense;
  using Operands::filters;
  using Operands::gathered;
  using Operands::taps;
  using typename Operands::Launched;
  using T = typename Config::A;
  using Sum = typename Config::Acc;
  using Product = std::conditional_t<Config::matrix, MatrixProduct<Config, T, T, true>, FmaProduct<Config, T>>;
  using Lines = StagedLines<T, Config::tile_k, true>;
  static constexpr bool weight = Config::variant == ConvVariant::backward_weight,
                        data = Config::variant == ConvVariant::backward_data;
  static constexpr int tm = Config::tile_m, tn = Config::tile_n, tk = Config::tile_k;
  static constexpr int stage_bytes = (tm + tn) * Lines::row * int(sizeof(T));
  static constexpr int staging_bytes = Product::band * Product::row * int(sizeof(Sum));
  static constexpr int lds_bytes = stage_bytes > staging_bytes ? stage_bytes : staging_bytes;
  static_assert(lds_bytes == Config::lds_bytes, "LDS is counted otherwise in Python");

  template <int lines, int width, bool along_k, class Map>
  static TW_GPU StagedFetch<Map, lines, tk, Config::threads, width, along_k> fetch(const Map &map, int line, int k) {
    return {map, line, k};
  }

  // One tile of the result, or one split of its k, of a group and a class.
  template <int tails> static TW_GPU void run(const Launched &x) {
    if constexpr (Config::matrix)
      static_assert(Product::wave * Config::warp_grid_m * Config::warp_grid_n == Config::threads,
                    "waves of another size");
    __shared__ __attribute__((aligned(16))) char lds[lds_bytes];
    const ConvClass &c = x.classes[data ? blockIdx.z : 0];
    const int z = blockIdx.y, part = Config::split_k > 1 ? int(blockIdx.z) : 0;
    const int rows = data ? c.pixels : x.m, depth = data ? c.taps * int(x.depth.by) : x.k;
    const int across = (x.n + tn - 1) / tn, m = int(blockIdx.x) / across * tm, n = int(blockIdx.x) % across * tn;
    if (m >= rows) return;
    const int first = part * c.turns * tk, left = depth - first;
    const int end = Config::split_k > 1 && left > c.turns * tk ? first + c.turns * tk : depth;
    const Bytes<T> a{static_cast<const T *>(x.a) + z * x.a_group, x.a_bytes};
    const Bytes<T> b{static_cast<const T *>(x.b) + z * x.b_group, x.b_bytes};
    const Tile at{x, c, rows, z, m, n, part};
    if constexpr (weight) {
      tile(at, fetch<tm, Config::read_a, false>(dense(a, end, x.m, x.a_stride), m, first),
           fetch<tn, Config::read_b, false>(gathered(x, c, b, end, x.n), n, first), lds);
    } else if constexpr (data) {
      tile(at, fetch<tm, Config::read_a, true>(gathered(x, c, a, rows, depth), m, 0),
           fetch<tn, Config::read_b, false>(taps(x, c, b, depth, x.n), n, 0), lds);
    } else {
      tile(at, fetch<tm, Config::read_a, true>(gathered(x, c, a, rows, depth), m, 0),
           fetch<tn, Config::read_b, true>(filters(x, b, x.n, depth), n, 0), lds);
    }
  }
  static TW_GPU void finish(const Launched &x) { add_splits<Config>(x, ConvFinished<Config>(x, x.classes[0])); }

 private:
  struct Tile {
    const Launched &x;
    const ConvClass &c;
    int rows, z, m, n, part;
  };
  template <class OfA, class OfB> static TW_GPU void tile(const Tile &at, OfA a, OfB b, char *lds) {
    T *const lines_a = reinterpret_cast<T *>(lds), *const lines_b = lines_a + tm * Lines::row;
    Product product;
    a.load(), b.load();
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < at.c.turns; ++turn) {
      a.put(lines_a), b.put(lines_b);
      __syncthreads();
      if (turn + 1 < at.c.turns) a.next(), b.next(), a.load(), b.load();
      product.multiply(lines_a, lines_b);
      __syncthreads();
    }
    Sum *const accum = reinterpret_cast<Sum *>(lds);
    const StagedTile place{at.z, at.m, at.n, at.rows};
    if constexpr (Config::split_k > 1) {
      using Out = Part<Config, Launched>;
      StagedStore<Config, 4, Product, Out>::all(place, product, Out{at.x, at.part}, accum);
    } else {
      using Out = ConvFinished<Config>;
      StagedStore<Config, Config::width_c, Product, Out>::all(place, product, Out(at.x, at.c), accum);
    }
  }
};

}  // namespace tw::hip
#endif
