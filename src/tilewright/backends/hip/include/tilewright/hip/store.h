// The epilogue store of a block: alpha, beta and C, the D tensors, the activation, one rounding to the output's type.
//
// Accumulators go through LDS as they are (fp32 or int32), in turns that fit beside what the pipeline staged, so that each lane
// then has neighbours of a row and reads C and D and writes E in wide accesses; or each lane writes what it holds,
// element by element.  Offsets are 64-bit.  Where k is split, accumulators go to the workspace untouched, and `finish` adds the
// splits in their order and does the rest.
#pragma once
#include <tilewright/hip/finished.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// Where a lane's accumulators lie in the tile.  CK Tile numbers them by the Ys of its encoding; the place of each is the lane's
// own place and an offset that is the same for every lane.
struct Place {
  int row, column;
};
template <class Encoding> constexpr Place place_of(int index) {
  Place found{0, 0};
  for (int y = Encoding::NDimY - 1; y >= 0; --y) {
    const int length = Encoding::detail::ys_lengths_[y], digit = index % length;
    const int axis = Encoding::ys_to_rhs_major_[y];
    int step = 1;
    for (int h = Encoding::ys_to_rhs_minor_[y] + 1; h < Encoding::detail::ndims_rhs_minor_[axis]; ++h)
      step *= Encoding::detail::rhs_lengthss_[axis][h];
    (axis == 1 ? found.row : found.column) += digit * step;
    index /= length;
  }
  return found;
}

// Which accumulators are stored together: in each turn a wave hands over turn_m x turn_n of its warp tiles, or one of `turn_parts`
// slabs of rows of one.
template <class Config> struct Turns {
  using Sum = typename Config::Acc;
  static constexpr int wave = 64, parts = Config::turn_parts;
  static constexpr int repeat_m = Config::tile_m / (Config::warp_grid_m * Config::warp_tile_m);
  static constexpr int repeat_n = Config::tile_n / (Config::warp_grid_n * Config::warp_tile_n);
  static constexpr int of_tile = Config::warp_tile_m * Config::warp_tile_n / wave, of_part = of_tile / parts;
  static constexpr int across = repeat_n / Config::turn_n, along = repeat_m / Config::turn_m;
  static constexpr int count = along * across * parts, held = Config::turn_m * Config::turn_n * of_part;
  static constexpr int band_m = Config::warp_grid_m * Config::warp_tile_m;  // of one warp tile of every wave
  static constexpr int band_n = Config::warp_grid_n * Config::warp_tile_n;
  static_assert(repeat_m % Config::turn_m == 0 && repeat_n % Config::turn_n == 0, "turns are not whole");
  static_assert(parts == 1 || (Config::turn_m == 1 && Config::turn_n == 1), "slabs of more than one warp tile");

  static constexpr int part_of(int turn) { return turn % parts; }
  static constexpr int n_of(int turn) { return turn / parts % across * Config::turn_n; }
  static constexpr int m_of(int turn) { return turn / parts / across * Config::turn_m; }
  // The index of the i-th sum of a turn among all.
  static constexpr int index_of(int turn, int i) {
    const int tile = i / of_part;
    const int m = m_of(turn) + tile / Config::turn_n, n = n_of(turn) + tile % Config::turn_n;
    return (m * repeat_n + n) * of_tile + part_of(turn) * of_part + i % of_part;
  }

  // That accumulators are numbered and placed as this file has it: warp tile by warp tile, a slab in rows of its own.
  template <class Encoding> static constexpr bool as_thought() {
    for (int i = 0; i < repeat_m * repeat_n * of_tile; ++i) {
      const Place all = place_of<Encoding>(i), one = place_of<Encoding>(i % of_tile);
      const int tile = i / of_tile, slab = Config::warp_tile_m / parts;
      if (all.row != tile / repeat_n * band_m + one.row || all.column != tile % repeat_n * band_n + one.column)
        return false;
      if (one.row / slab != i % of_tile / of_part) return false;
    }
    return true;
  }

  // The accumulators of a turn.  All of them stay where they are until the last turn, so the code behind a turn is there once.
  template <int first = 0, int last = count, class All>
  static TW_GPU void take(int turn, const All &all, Sum (&to)[held]) {
    if constexpr (last - first == 1) {
      take_all<first>(all, to, std::make_integer_sequence<int, held>());
    } else {
      constexpr int middle = (first + last) / 2;
      if (turn < middle) take<first, middle>(turn, all, to);
      else take<middle, last>(turn, all, to);
    }
  }

 private:
  template <int turn, class All, int... i>
  static TW_GPU void take_all(const All &all, Sum (&to)[held], std::integer_sequence<int, i...>) {
    ((to[i] = all[index_of(turn, i)]), ...);
  }
};

// Where a tile lies: a matrix of the batch, and the first row and column.
struct Corner {
  int64_t z;
  int m, n;
};

// From the registers: a lane holds pieces of columns, so single elements.
template <class Config> struct Direct {
  using T = Turns<Config>;
  static constexpr int lds_bytes = 0;

  template <class Accumulators, class Out>
  static TW_GPU void store_tile(int rows, const Accumulators &accum, Out out, Corner at, void *) {
    using Encoding = typename Accumulators::StaticTileDistribution::DstrEncode;
    static_assert(T::template as_thought<Encoding>(), "CK Tile keeps its sums in another order");
    const auto own = Accumulators::get_tile_distribution().calculate_index();
    at.m += own[ck_tile::number<0>{}], at.n += own[ck_tile::number<1>{}];
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < T::count; ++turn) {
      typename Config::Acc held[T::held];
      T::take(turn, accum.get_thread_buffer(), held);
      each<Encoding>(rows, held, out, {at.z, at.m + T::m_of(turn) * T::band_m, at.n + T::n_of(turn) * T::band_n},
                     std::make_integer_sequence<int, T::held>());
    }
  }

 private:
  template <class Encoding, class Out, int... i>
  static TW_GPU void each(int rows, const typename Config::Acc (&held)[T::held], Out out, Corner at,
                          std::integer_sequence<int, i...>) {
    (one<place_of<Encoding>(i).row, place_of<Encoding>(i).column>(rows, held[i], out, at), ...);
  }
  template <int down, int right, class Out>
  static TW_GPU void one(int rows, typename Config::Acc sum, Out out, Corner at) {
    const typename Config::Acc alone[1] = {sum};
    if (!Config::pad_m || at.m + down < rows) out(alone, at.z, at.m + down, at.n + right);
  }
};

// Through LDS.
template <class Config> struct Shuffled {
  using T = Turns<Config>;
  using Sum = typename Config::Acc;
  static constexpr int width = Config::split_k > 1 ? 4 : Config::width_c;
  static constexpr int threads = Config::threads / Config::wave_groups;  // those that are here
  static constexpr int slab = Config::warp_tile_m / T::parts;
  static constexpr int rows = Config::turn_m * Config::warp_grid_m * slab, columns = Config::turn_n * T::band_n;
  static constexpr int lds_bytes = rows * columns * int(sizeof(Sum));
  static_assert(columns % width == 0, "rows are not whole accesses");

  template <class Accumulators, class Out>
  static TW_GPU void store_tile(int all_rows, const Accumulators &accum, Out out, Corner at, void *lds) {
    using Encoding = typename Accumulators::StaticTileDistribution::DstrEncode;
    static_assert(T::template as_thought<Encoding>(), "CK Tile keeps its sums in another order");
    const auto own = Accumulators::get_tile_distribution().calculate_index();
    const int own_row = own[ck_tile::number<0>{}], own_column = own[ck_tile::number<1>{}];
    const int row = own_row / Config::warp_tile_m * slab + own_row % Config::warp_tile_m;
    Sum *const block = static_cast<Sum *>(lds);
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < T::count; ++turn) {
      Sum held[T::held];
      T::take(turn, accum.get_thread_buffer(), held);
      __syncthreads();  // whoever read LDS last has done so
      put<Encoding>(block + row * columns + (own_column ^ transposed<Encoding>(row)), held,
                    std::make_integer_sequence<int, T::held>());
      __syncthreads();
      away<Encoding>(
          all_rows, block, out,
          {at.z, at.m + T::m_of(turn) * T::band_m + T::part_of(turn) * slab, at.n + T::n_of(turn) * T::band_n});
    }
  }

 private:
  // 16-wide warp tiles: lanes of two groups, four rows apart, write at once.  Their rows change halves, so that they
  // meet in no bank.  Only where neither the rows of a lane's own accumulators decide it nor, with warp tiles of four rows,
  // which of the turn's warp tiles a sum is of.
  template <class Encoding> static constexpr bool turns_rows() {
    if (Config::turn_m > 1 && Config::warp_grid_m * slab % 8) return false;
    if (T::band_n % 32 || T::of_tile < 4 || place_of<Encoding>(3).row != 3) return false;
    for (int i = 0; i < T::of_tile; ++i)
      if ((place_of<Encoding>(i).row & 4) || place_of<Encoding>(i).column % 32) return false;
    return true;
  }
  template <class Encoding> static TW_GPU int transposed(int row) {
    return turns_rows<Encoding>() ? (row & 4) << 2 : 0;
  }

  template <class Encoding> static constexpr int offset_of(int i) {
    const Place at = place_of<Encoding>(i % T::of_part);  // of the first slab
    const int tile = i / T::of_part, m = tile / Config::turn_n, n = tile % Config::turn_n;
    return (m * Config::warp_grid_m * slab + at.row) * columns + n * T::band_n + at.column;
  }
  template <class Encoding, int... i>
  static TW_GPU void put(Sum *at, const Sum (&held)[T::held], std::integer_sequence<int, i...>) {
    ((at[std::integral_constant<int, offset_of<Encoding>(i)>::value] = held[i]), ...);
  }

  // What all waves put there, in rows.
  template <class Encoding, class Out> static TW_GPU void away(int all_rows, const Sum *block, Out out, Corner at) {
    constexpr int pieces = columns / width, all = rows * pieces;
    const int thread = int(threadIdx.x);
#pragma unroll 2
    for (int piece = thread; piece < all; piece += threads) {
      const int row = piece / pieces, column = piece % pieces * width;
      // Slabs of one warp tile are apart in E.
      const int to = at.m + (T::parts == 1 ? row : row / slab * Config::warp_tile_m + row % slab);
      if (Config::pad_m && to >= all_rows) continue;
      Sum accum[width];
      const Sum *from = block + row * columns + (column ^ transposed<Encoding>(row));
      constexpr int wide = width < 4 ? width : 4;
#pragma unroll
      for (int j = 0; j < width; j += wide) {
        const auto some = *reinterpret_cast<const typename Together<Sum, wide>::type *>(from + j);
#pragma unroll
        for (int i = 0; i < wide; ++i) accum[j + i] = __builtin_bit_cast(Sum, uint32_t(some[i]));
      }
      out(accum, at.z, to, at.n + column);
    }
  }
};

}  // namespace tw::hip
#endif
