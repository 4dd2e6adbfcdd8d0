// Operands and results of a convolution as a matrix product has them: where a row and a column lie in memory.
//
// Lanes compute the places of their rows and columns once each, and join them for every load.  What lies outside reads as
// zeros by an offset behind the operand's end.  Nothing here depends on CK Tile, but that loads through its buffers are
// used where it is there.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/hip/conv/kernel.h>
#include <tilewright/hip/store_modes.h>

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
#if !defined(CK_TILE_BUFFER_RESOURCE_3RD_DWORD)
  template <int width> TW_GPU Some<width> load(uint32_t at) const {
    struct alignas(width * sizeof(T)) Whole {
      Some<width> some;
    };
    if (at >= count) return {};
    return reinterpret_cast<const Whole *>(reinterpret_cast<const char *>(from) + at)->some;
  }
#else
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
#endif
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
  // Functions, for the compiler would load constants from memory.
  static TW_GPU Place no_row() { return {0, -1}; }
  static TW_GPU Place no_column() { return {0, -2}; }

  TW_GPU uint32_t at(const Row &row, const Column &column) const {
    return row.group == column.group ? row.at + column.at : nowhere;
  }
};
// Rows are filters, columns taps and channels.
template <class T, class Launched> struct MergedFilters : Merged<T, Launched> {
  using Base = Merged<T, Launched>;
  using typename Base::Place;

  TW_GPU Place row(int r) const {
    if (r >= this->rows) return Base::no_row();
    return {uint32_t(r) * uint32_t(this->x->b_stride) * uint32_t(sizeof(T)), this->x->outer.quotient(r)};
  }
  TW_GPU Place column(int c) const {
    if (c >= this->columns) return Base::no_column();
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
    if (r >= this->rows) return Base::no_row();
    const auto found = TapOfFilter::of<spatial>(*this->x, *c, r);
    return {uint32_t(found.at) * uint32_t(sizeof(T)), this->x->inner.quotient(found.filter)};
  }
  TW_GPU Place column(int column) const {
    if (column >= this->columns) return Base::no_column();
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

// Neighbours of a row of the result: pixels, or filters of weights.
template <class Config> struct ConvFinished : private StoreMode<Config> {
  using Base = StoreMode<Config>;
  using typename Base::C;
  using typename Base::D;
  using typename Base::Real;
  using typename Base::Sum;
  using Launched = ConvLaunch<conv_classes<Config>>;

  const Launched &x;
  const ConvClass &c;

  TW_GPU ConvFinished(const Launched &launch, const ConvClass &one) : x(launch), c(one) {}

  template <int width> TW_GPU void operator()(const Sum (&accum)[width], int64_t z, int64_t row, int64_t column) const {
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
    for (int j = 0; j < width; ++j) value[j] = Real(accum[j]);
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

// The operands of a direction.
template <class Config> struct ConvOperands {
  using B = typename Config::B;
  using Launched = ConvLaunch<conv_classes<Config>>;

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
};

}  // namespace tw::hip
#endif
