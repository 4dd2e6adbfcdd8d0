// A convolution on CK Tile's pipelines: what a block does.  The product, its tails and the way out are GEMM's; operands
// come through windows of our own, which CK Tile's pipelines take as they take theirs.
//
// A window of CK Tile knows no vector length for rows that are gathered, and loads element by element.  Ours has the
// lane's rows and columns worked out beforehand: of what stays as the k loop goes on once, of what moves once a turn.
// Neighbours along channels are one load of the width the kernel was made for, and what lies outside reads as zeros by
// an offset behind the operand's end.
#pragma once
#include <tilewright/hip/ck_tile_gemm.h>
#include <tilewright/hip/conv.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

constexpr uint32_t nowhere = 0x80000000u;  // bytes, behind the end of every operand
constexpr int far_away = -(1 << 30);       // a pixel outside of every image

// An operand's memory, one group of it.
template <class T> struct Bytes {
  const T *from = nullptr;
  uint32_t count = 0;

  template <int width> struct Some {
    T v[width];
  };
  template <int width> TW_GPU Some<width> load(uint32_t at) const {
    const auto all =
        __builtin_amdgcn_make_buffer_rsrc(const_cast<T *>(from), 0, count, CK_TILE_BUFFER_RESOURCE_3RD_DWORD);
    constexpr int bytes = width * int(sizeof(T));
    if constexpr (bytes == 16)
      return __builtin_bit_cast(Some<width>, __builtin_amdgcn_raw_buffer_load_b128(all, at, 0, 0));
    else if constexpr (bytes == 8)
      return __builtin_bit_cast(Some<width>, __builtin_amdgcn_raw_buffer_load_b64(all, at, 0, 0));
    else if constexpr (bytes == 4)
      return __builtin_bit_cast(Some<width>, __builtin_amdgcn_raw_buffer_load_b32(all, at, 0, 0));
    else if constexpr (bytes == 2)
      return __builtin_bit_cast(Some<width>, __builtin_amdgcn_raw_buffer_load_b16(all, at, 0, 0));
    else return __builtin_bit_cast(Some<width>, __builtin_amdgcn_raw_buffer_load_b8(all, at, 0, 0));
  }
};

// Rows that lie anywhere, elements of a row side by side: the offset of a row, and of a column, in bytes.
template <class T> struct Rows2D {
  using Element = T;
  using Row = uint32_t;
  using Column = uint32_t;
  Bytes<T> memory{};
  int rows = 0, columns = 0;

  TW_GPU Column column(int c) const { return c < columns ? uint32_t(c) * sizeof(T) : nowhere; }
  TW_GPU uint32_t at(Row row, Column column) const { return column == nowhere ? nowhere : row + column; }
};

// Rows at equal distances.
template <class T> struct Dense : Rows2D<T> {
  int stride = 0;
  TW_GPU uint32_t row(int r) const { return r < this->rows ? uint32_t(r) * uint32_t(stride) * sizeof(T) : nowhere; }
};

// A row of weights that is a tap and a filter, in the order of a class.
struct TapOfFilter {
  int at, filter;

  template <int spatial, class Launched> static TW_GPU TapOfFilter of(const Launched &x, const ConvClass &c, int r) {
    int tap = x.depth.quotient(r), filter = r - tap * int(x.depth.by), at = filter * x.filter + c.weights;
#pragma unroll
    for (int axis = conv_axes - 1; axis >= conv_axes - spatial; --axis) {
      const int rest = axis > conv_axes - spatial ? c.window[axis].quotient(tap) : 0;
      at += (tap - rest * int(c.window[axis].by)) * x.tap[axis];
      tap = rest;
    }
    return {at, filter};
  }
};
template <class T, class Launched, int spatial> struct Taps : Rows2D<T> {
  const Launched *x = nullptr;
  const ConvClass *c = nullptr;

  TW_GPU uint32_t row(int r) const {
    return r < this->rows ? uint32_t(TapOfFilter::of<spatial>(*x, *c, r).at) * sizeof(T) : nowhere;
  }
};

// Weights of merged groups: where a row and a column are of different groups there is nothing.
template <class T, class Launched> struct Merged {
  using Element = T;
  struct Place {
    uint32_t at;
    int group;
  };
  using Row = Place;
  using Column = Place;
  Bytes<T> memory{};
  int rows = 0, columns = 0;
  const Launched *x = nullptr;
  static constexpr Place no_row{0, -1}, no_column{0, -2};

  TW_GPU uint32_t at(const Row &row, const Column &column) const {
    return row.group == column.group ? row.at + column.at : nowhere;
  }
};
// Rows are filters, columns taps and channels.
template <class T, class Launched> struct MergedFilters : Merged<T, Launched> {
  using Base = Merged<T, Launched>;
  using typename Base::Place;

  TW_GPU Place row(int r) const {
    if (r >= this->rows) return Base::no_row;
    return {uint32_t(r) * uint32_t(this->x->b_stride) * uint32_t(sizeof(T)), this->x->outer.quotient(r)};
  }
  TW_GPU Place column(int c) const {
    if (c >= this->columns) return Base::no_column;
    const auto &x = *this->x;
    const int tap = x.depth.quotient(c), channel = c - tap * int(x.depth.by), group = x.inner.quotient(channel);
    return {uint32_t(channel + (tap - group) * int(x.inner.by)) * uint32_t(sizeof(T)), group};
  }
};
// Rows are taps and filters, columns channels.
template <class T, class Launched, int spatial> struct MergedTaps : Merged<T, Launched> {
  using Base = Merged<T, Launched>;
  using typename Base::Place;
  const ConvClass *c = nullptr;

  TW_GPU Place row(int r) const {
    if (r >= this->rows) return Base::no_row;
    const auto found = TapOfFilter::of<spatial>(*this->x, *c, r);
    return {uint32_t(found.at) * uint32_t(sizeof(T)), this->x->inner.quotient(found.filter)};
  }
  TW_GPU Place column(int column) const {
    if (column >= this->columns) return Base::no_column;
    const int group = this->x->outer.quotient(column);
    return {uint32_t(column - group * int(this->x->outer.by)) * uint32_t(sizeof(T)), group};
  }
};

// Rows are pixels of a class, columns taps and channels.
template <class T, class Launched, int spatial> struct Gathered {
  using Element = T;
  struct Place {
    int at, pixel[spatial];
  };
  using Row = Place;
  using Column = Place;

  Bytes<T> memory{};
  int rows = 0, columns = 0;
  const Launched *x = nullptr;
  const ConvClass *c = nullptr;
  static constexpr int front = conv_axes - spatial;

  TW_GPU Row row(int r) const {
    Place found{0, {}};
    int rest = r;
#pragma unroll
    for (int axis = conv_axes - 1; axis >= front; --axis) {
      const int more = c->size[axis].quotient(rest);
      const int pixel = (rest - more * int(c->size[axis].by)) * x->step[axis] + c->first[axis];
      found.at += pixel * x->read[1 + axis], found.pixel[axis - front] = pixel;
      rest = more;
    }
    found.at += rest * x->read[0];
    if (r >= rows) found.pixel[0] = far_away;
    return found;
  }
  TW_GPU Column column(int column) const {
    int rest = x->depth.quotient(column);
    Place found{column - rest * int(x->depth.by), {}};
#pragma unroll
    for (int axis = conv_axes - 1; axis >= front; --axis) {
      const int more = axis > front ? c->window[axis].quotient(rest) : 0;
      const int pixel = (rest - more * int(c->window[axis].by)) * x->reach[axis];
      found.at += pixel * x->read[1 + axis], found.pixel[axis - front] = pixel;
      rest = more;
    }
    if (column >= columns) found.pixel[0] = far_away;
    return found;
  }
  TW_GPU uint32_t at(const Row &row, const Column &column) const {
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < spatial; ++axis)
      inside &= uint32_t(row.pixel[axis] + column.pixel[axis]) < uint32_t(x->size[front + axis]);
    return inside ? uint32_t(row.at + column.at) * uint32_t(sizeof(T)) : nowhere;
  }
};

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

// A block's window as pipelines take it; of the view they ask nothing but windows of lanes.
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

// Neighbours of a row of the result: pixels, or filters of weights.
template <class Config> struct ConvFinished : private Leaving<Config> {
  using Base = Leaving<Config>;
  using typename Base::C;
  using typename Base::D;
  using typename Base::Real;
  using typename Base::Sum;
  using Launched = ConvLaunch<conv_classes<Config>>;

  const Launched &x;
  const ConvClass &c;

  TW_GPU ConvFinished(const Launched &launch, const ConvClass &one) : x(launch), c(one) {}

  template <int width> TW_GPU void operator()(const Sum (&sums)[width], int64_t z, int64_t row, int64_t column) const {
    if (column >= x.n) return;
    const int count = x.n - column < width ? int(x.n - column) : width;
    int64_t at = z * x.e_group + column, of_d[TW_CONV_MAX_D] = {};
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) of_d[t] = z * x.d_group[t] + column * x.d_column[t];
    if constexpr (Config::variant == ConvVariant::backward_weight) {
      at += row * x.written[0];
    } else {
      int rest = int(row);
      at += c.written;
#pragma unroll
      for (int axis = conv_axes - 1; axis >= conv_axes - Config::spatial; --axis) {
        const int more = c.size[axis].quotient(rest);
        add(at, of_d, rest - more * int(c.size[axis].by), 1 + axis);
        rest = more;
      }
      add(at, of_d, rest, 0);
    }
    Real value[width], other[width];
#pragma unroll
    for (int j = 0; j < width; ++j) value[j] = Real(sums[j]);
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      Base::load(other, static_cast<const D *>(x.d[t]) + of_d[t], x.d_column[t], x.wide & (wide_d << t), count);
      Base::combine(value, other);
    }
    Base::store(static_cast<C *>(x.e) + at, value, x.wide & wide_e, count);
  }

 private:
  TW_GPU void add(int64_t &at, int64_t (&of_d)[TW_CONV_MAX_D], int64_t place, int stride) const {
    at += place * x.written[stride];
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) of_d[t] += place * x.d_written[t][stride];
  }
};

template <class Config> struct ConvDevice : Product<Config> {
  using Base = Product<Config>;
  using typename Base::Partitioner;
  using typename Base::Store;
  using A = typename Config::A;
  using B = typename Config::B;
  using Launched = ConvLaunch<conv_classes<Config>>;
  static constexpr ConvVariant variant = Config::variant;
  static constexpr bool weight = variant == ConvVariant::backward_weight, data = variant == ConvVariant::backward_data;
  static_assert(!Config::persistent && Config::wave_groups == 1 && Config::pad_m && Config::pad_n && Config::pad_k);

  template <class T> static TW_GPU Dense<T> dense(Bytes<T> memory, int rows, int columns, int stride) {
    return {{memory, rows, columns}, stride};
  }
  // What is read at taps; of one tap that moves with the pixels, plain rows.
  template <class T>
  static TW_GPU auto gathered(const Launched &x, const ConvClass &c, Bytes<T> memory, int rows, int columns) {
    if constexpr (Config::pointwise) return dense(memory, rows, columns, x.read[conv_axes]);
    else return Gathered<T, Launched, Config::spatial>{memory, rows, columns, &x, &c};
  }
  static TW_GPU auto taps(const Launched &x, const ConvClass &c, Bytes<B> memory, int rows, int columns) {
    if constexpr (Config::merged > 1) return MergedTaps<B, Launched, Config::spatial>{{memory, rows, columns, &x}, &c};
    else if constexpr (Config::pointwise) return dense(memory, rows, columns, x.filter);
    else return Taps<B, Launched, Config::spatial>{{memory, rows, columns}, &x, &c};
  }
  static TW_GPU auto filters(const Launched &x, Bytes<B> memory, int rows, int columns) {
    if constexpr (Config::merged > 1) return MergedFilters<B, Launched>{{memory, rows, columns, &x}};
    else return dense(memory, rows, columns, x.b_stride);
  }
  template <int rows, int columns, int width, class Map>
  static TW_GPU Operand<Map, rows, columns, width> window(const Map &map, int row, int column) {
    return {{map}, {row, column}};
  }

  // One tile of the result, or one part of its k, of a group and a class.
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
      leave<tails>(x, c, rows, {z, m, n}, part,
                   window<tk, tm, Config::read_a>(dense(a, end, x.m, x.a_stride), first, m),
                   window<tk, tn, Config::read_b>(gathered(x, c, b, end, x.n), first, n), lds, more...);
    } else if constexpr (data) {
      leave<tails>(x, c, rows, {z, m, n}, part, window<tm, tk, Config::read_a>(gathered(x, c, a, rows, depth), m, 0),
                   window<tk, tn, Config::read_b>(taps(x, c, b, depth, x.n), 0, n), lds, more...);
    } else {
      leave<tails>(x, c, rows, {z, m, n}, part, window<tm, tk, Config::read_a>(gathered(x, c, a, rows, depth), m, 0),
                   window<tn, tk, Config::read_b>(filters(x, b, x.n, depth), n, 0), lds, more...);
    }
  }

  template <int tails, class OfA, class OfB, class... Lds>
  static TW_GPU void leave(const Launched &x, const ConvClass &c, int rows, Corner at, int part, const OfA &a,
                           const OfB &b, char *lds, Lds *...more) {
    const auto &all = Base::template sums<tails>(a, b, c.turns, static_cast<void *>(lds), more...);
    if constexpr (Config::split_k > 1) Store::leave(rows, all, Part<Config, Launched>{x, part}, at, lds);
    else Store::leave(rows, all, ConvFinished<Config>(x, c), at, lds);
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

  static TW_GPU void finish(const Launched &x) { add_parts<Config>(x, ConvFinished<Config>(x, x.classes[0])); }
};

}  // namespace tw::hip
#endif
