// A convolution on CK Tile's pipelines: what a block does.  The product, its tails and the way out are GEMM's; operands
// come through windows of our own, which CK Tile's pipelines take as they take theirs.
//
// A window of CK Tile knows no vector length for rows that are gathered, and loads element by element.  Ours has the
// lane's rows and columns worked out beforehand: of what stays as the k loop goes on once, of what moves once a turn.
// Neighbours along channels are one load of the width the kernel was made for, and what lies outside reads as zeros by
// an offset behind the operand's end.
#pragma once
#include <tilewright/hip/ck_tile_gemm.h>
#include <tilewright/hip/conv/maps.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// Rows and columns a lane reads, each once, as offsets from its first: `width` neighbours of a row are one access.
template <int accesses> struct Accesses {
  int rows = 0, columns = 0;
  int row_of[accesses] = {}, column_of[accesses] = {};
  int row_at[accesses] = {}, column_at[accesses] = {};
  bool whole = true;

  static constexpr int numbered(int (&at)[accesses], int &count, int value) {
    for (int i = 0; i < count; ++i)
      if (at[i] == value) return i;
    at[count] = value;
    return count++;
  }
};
template <class Encoding, int accesses, int width> constexpr Accesses<accesses> accesses_of() {
  Accesses<accesses> found;
  for (int i = 0; i < accesses; ++i) {
    const Place first = place_of<Encoding>(i * width);
    for (int j = 1; j < width; ++j) {
      const Place next = place_of<Encoding>(i * width + j);
      found.whole = found.whole && next.row == first.row && next.column == first.column + j;
    }
    found.row_of[i] = found.numbered(found.row_at, found.rows, first.row);
    found.column_of[i] = found.numbered(found.column_at, found.columns, first.column);
  }
  return found;
}

// A lane's part of a window.
template <class Map, class Distribution, int width> struct Lanes {
  using T = typename Map::Element;
  using DataType = T;
  using BottomTensorIndex = ck_tile::array<ck_tile::index_t, 2>;
  using Encoding = typename Distribution::DstrEncode;
  static constexpr int held = Distribution{}.get_ys_to_d_descriptor().get_element_space_size();
  static constexpr int accesses = held / width;
  static_assert(held % width == 0, "a lane's elements are not whole loads");
  static constexpr Accesses<accesses> plan = accesses_of<Encoding, accesses, width>();
  static_assert(plan.whole, "neighbours of a row are not neighbours in a lane");

  Map map;
  int row, column;
  typename Map::Row rows[plan.rows];
  typename Map::Column columns[plan.columns];

  TW_GPU Lanes(const Map &from, const BottomTensorIndex &origin) : map(from) {
    const auto own = Distribution{}.calculate_index();
    row = origin[0] + own[ck_tile::number<0>{}], column = origin[1] + own[ck_tile::number<1>{}];
    find_rows(std::make_integer_sequence<int, plan.rows>());
    find_columns(std::make_integer_sequence<int, plan.columns>());
  }
  static TW_GPU constexpr auto get_tile_distribution() { return Distribution{}; }

  template <class Tile, int access, bool checked>
  TW_GPU void load(Tile &to, ck_tile::number<access>, ck_tile::bool_constant<checked>) const {
    read(to, std::make_integer_sequence<int, accesses>());
  }
  TW_GPU void move(const BottomTensorIndex &step) {
    if (step[0]) row += step[0], find_rows(std::make_integer_sequence<int, plan.rows>());
    if (step[1]) column += step[1], find_columns(std::make_integer_sequence<int, plan.columns>());
  }

 private:
  template <int... i> TW_GPU void find_rows(std::integer_sequence<int, i...>) {
    ((rows[i] = map.row(row + plan.row_at[i])), ...);
  }
  template <int... i> TW_GPU void find_columns(std::integer_sequence<int, i...>) {
    ((columns[i] = map.column(column + plan.column_at[i])), ...);
  }
  template <class Tile, int... i> TW_GPU void read(Tile &to, std::integer_sequence<int, i...>) const {
    (put<i>(to, map.memory.template load<width>(map.at(rows[plan.row_of[i]], columns[plan.column_of[i]])),
            std::make_integer_sequence<int, width>()),
     ...);
  }
  template <int i, class Tile, class Some, int... j>
  static TW_GPU void put(Tile &to, const Some &some, std::integer_sequence<int, j...>) {
    ((to.get_thread_buffer().template at<i * width + j>() = some.v[j]), ...);
  }
};

// A block's window as pipelines take it; of the view they use nothing but windows of lanes.
template <class Map, int width> struct View {
  Map map{};
};
template <class Map, int width, class Lengths, class Distribution>
TW_GPU auto make_tile_window(const View<Map, width> &view, const Lengths &,
                             const ck_tile::array<ck_tile::index_t, 2> &origin, const Distribution &) {
  return Lanes<Map, Distribution, width>(view.map, origin);
}
template <class Map, int rows, int columns, int width> struct Operand {
  using DataType = typename Map::Element;
  using BottomTensorIndex = ck_tile::array<ck_tile::index_t, 2>;
  View<Map, width> view{};
  BottomTensorIndex origin{0, 0};

  static TW_GPU constexpr auto get_window_lengths() {
    return ck_tile::make_tuple(ck_tile::number<rows>{}, ck_tile::number<columns>{});
  }
  TW_GPU const View<Map, width> &get_bottom_tensor_view() const { return view; }
  TW_GPU BottomTensorIndex get_window_origin() const { return origin; }
};

template <class Config> struct ConvDevice : Product<Config>, ConvOperands<Config> {
  using Base = Product<Config>;
  using typename Base::Partitioner;
  using typename Base::Store;
  using A = typename Config::A;
  using B = typename Config::B;
  using Operands = ConvOperands<Config>;
  using Operands::dense;
  using Operands::filters;
  using Operands::gathered;
  using Operands::taps;
  using typename Operands::Launched;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr bool weight = variant == ConvVariant::backward_weight, data = variant == ConvVariant::backward_data;
  static_assert(!Config::persistent && Config::pad_m && Config::pad_n && Config::pad_k);

  template <int rows, int columns, int width, class Map>
  static TW_GPU Operand<Map, rows, columns, width> window(const Map &map, int row, int column) {
    return {{map}, {row, column}};
  }

  // One tile of the result, or one split of its k, of a group and a class.
  template <int tails, class... Lds> static TW_GPU void tile(const Launched &x, char *lds, Lds *...more) {
    const ConvClass &c = x.classes[data ? blockIdx.z : 0];
    const int z = blockIdx.y, part = Config::split_k > 1 ? int(blockIdx.z) : 0;
    const int rows = data ? c.pixels : x.m, depth = data ? c.taps * int(x.depth.by) : x.k;
    if (int(blockIdx.x) >= Partitioner::GridSize(rows, x.n)) return;
    const auto [row, column] = Partitioner{rows, x.n}.GetOutputTileIndex(__builtin_amdgcn_readfirstlane(blockIdx.x));
    const int m = __builtin_amdgcn_readfirstlane(row * Config::tile_m);
    const int n = __builtin_amdgcn_readfirstlane(column * Config::tile_n);
    const int first = part * c.turns * Config::tile_k, left = depth - first;
    const int end = Config::split_k > 1 && left > c.turns * Config::tile_k ? first + c.turns * Config::tile_k : depth;
    const Bytes<A> a{static_cast<const A *>(x.a) + z * x.a_group, x.a_bytes};
    const Bytes<B> b{static_cast<const B *>(x.b) + z * x.b_group, x.b_bytes};
    constexpr int tm = Config::tile_m, tn = Config::tile_n, tk = Config::tile_k;
    if constexpr (weight) {
      store_tile<tails>(x, c, rows, {z, m, n}, part,
                        window<tk, tm, Config::read_a>(dense(a, end, x.m, x.a_stride), first, m),
                        window<tk, tn, Config::read_b>(gathered(x, c, b, end, x.n), first, n), lds, more...);
    } else if constexpr (data) {
      store_tile<tails>(x, c, rows, {z, m, n}, part,
                        window<tm, tk, Config::read_a>(gathered(x, c, a, rows, depth), m, 0),
                        window<tk, tn, Config::read_b>(taps(x, c, b, depth, x.n), 0, n), lds, more...);
    } else {
      store_tile<tails>(x, c, rows, {z, m, n}, part,
                        window<tm, tk, Config::read_a>(gathered(x, c, a, rows, depth), m, 0),
                        window<tn, tk, Config::read_b>(filters(x, b, x.n, depth), n, 0), lds, more...);
    }
  }

  template <int tails, class OfA, class OfB, class... Lds>
  static TW_GPU void store_tile(const Launched &x, const ConvClass &c, int rows, Corner at, int part, const OfA &a,
                                const OfB &b, char *lds, Lds *...more) {
    const auto &all = Base::template accum<tails>(a, b, c.turns, static_cast<void *>(lds), more...);
    // With two groups of waves, the first has the accumulators of both.
    if (Config::wave_groups == 1 || ck_tile::get_warp_id() == 0) {
      if constexpr (Config::split_k > 1) Store::store_tile(rows, all, Part<Config, Launched>{x, part}, at, lds);
      else Store::store_tile(rows, all, ConvFinished<Config>(x, c), at, lds);
    }
  }

  template <int tails> static TW_GPU void run(const Launched &x) {
    static_assert(Base::as_ck_tile(), "CK Tile chooses other tails than ours");
    __shared__ __attribute__((aligned(16))) char lds[Base::lds_bytes];
    if constexpr (Config::lds_buffers == 2) {
      __shared__ __attribute__((aligned(16))) char other[Base::stage_bytes];
      tile<tails>(x, lds, static_cast<void *>(other));
    } else {
      tile<tails>(x, lds);
    }
  }

  static TW_GPU void finish(const Launched &x) { add_splits<Config>(x, ConvFinished<Config>(x, x.classes[0])); }
};

}  // namespace tw::hip
#endif
