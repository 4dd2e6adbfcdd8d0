// What CK Tile's headers of mid-2025 get wrong or leave out, done right before a pipeline uses it.
// Included behind <ck_tile/core.hpp>, by the glue header and by the test that runs these functions on the host.
#pragma once
#include <ck_tile/core.hpp>

namespace tw::hip {

// `rows` vectors of `columns` elements become `columns` vectors of `rows`: what a lane does with what it loaded along
// the contiguous side before it writes along k.  CK Tile's own transposes bytes wrongly where a count is no multiple of 4
// (whole pairs of bytes, and with rows and columns mixed up), and has no form for four-byte elements.
template <class S, ck_tile::index_t rows, ck_tile::index_t columns> struct Transposed {
  static constexpr ck_tile::index_t s_per_x = columns, s_per_y = rows;
  using From = ck_tile::thread_buffer<ck_tile::array<S, columns>, rows>;
  using To = ck_tile::thread_buffer<ck_tile::array<S, rows>, columns>;
  using Four = ck_tile::array<S, 4>;

  CK_TILE_DEVICE void operator()(const From &x, To &y) {
    if constexpr (sizeof(S) == 1 && columns % 4 == 0 && rows % 4 == 0) by_fours(x, y);
    else if constexpr (sizeof(S) == 1 && columns % 4 == 0 && rows == 2) in_pairs(x, y);
    else one_by_one(x, y);
  }

 private:
  template <int at> static CK_TILE_DEVICE int32_t word(const From &x, ck_tile::index_t row) {
    return ck_tile::bit_cast<int32_t>(x[row].template get_as<Four>()[ck_tile::number<at>{}]);
  }
  // The byte of `low` (0 to 3) or `high` (4 to 7) that each digit names, the last digit first in memory.
  template <int digits> static CK_TILE_DEVICE int32_t picked(int32_t high, int32_t low) {
    return __builtin_amdgcn_perm(high, low, digits);
  }

  static CK_TILE_DEVICE void by_fours(const From &x, To &y) {
    ck_tile::static_for<0, columns, 4>{}([&](auto column) {
      ck_tile::static_for<0, rows, 4>{}([&](auto row) {
        constexpr int at = column / 4;
        const int32_t x0 = word<at>(x, row), x1 = word<at>(x, row + 1), x2 = word<at>(x, row + 2),
                      x3 = word<at>(x, row + 3);
        const int32_t low01 = picked<0x05010400>(x1, x0), low23 = picked<0x05010400>(x3, x2);
        const int32_t high01 = picked<0x07030602>(x1, x0), high23 = picked<0x07030602>(x3, x2);
        const int32_t transposed[] = {picked<0x05040100>(low23, low01), picked<0x07060302>(low23, low01),
                                      picked<0x05040100>(high23, high01), picked<0x07060302>(high23, high01)};
        ck_tile::static_for<0, 4, 1>{}([&](auto i) {
          y(column + i).template get_as<Four>()(ck_tile::number<row / 4>{}) = ck_tile::bit_cast<Four>(transposed[i]);
        });
      });
    });
  }

  // Two vectors: a word of the result is two columns.
  static CK_TILE_DEVICE void in_pairs(const From &x, To &y) {
    ck_tile::static_for<0, columns, 4>{}([&](auto column) {
      constexpr int at = column / 4;
      const int32_t x0 = word<at>(x, 0), x1 = word<at>(x, 1);
      y.template set_as<Four>(ck_tile::number<column / 2>{}, ck_tile::bit_cast<Four>(picked<0x05010400>(x1, x0)));
      y.template set_as<Four>(ck_tile::number<column / 2 + 1>{}, ck_tile::bit_cast<Four>(picked<0x07030602>(x1, x0)));
    });
  }

  static CK_TILE_DEVICE void one_by_one(const From &x, To &y) {
    ck_tile::static_for<0, columns, 1>{}(
        [&](auto column) { ck_tile::static_for<0, rows, 1>{}([&](auto row) { y(column)(row) = x[row][column]; }); });
  }
};

}  // namespace tw::hip

namespace ck_tile {

template <index_t rows, index_t columns> struct transpose_vectors<int8_t, rows, columns>
    : tw::hip::Transposed<int8_t, rows, columns> {};
template <index_t rows, index_t columns> struct transpose_vectors<fp8_t, rows, columns>
    : tw::hip::Transposed<fp8_t, rows, columns> {};
template <index_t rows, index_t columns> struct transpose_vectors<bf8_t, rows, columns>
    : tw::hip::Transposed<bf8_t, rows, columns> {};
template <index_t rows, index_t columns> struct transpose_vectors<float, rows, columns>
    : tw::hip::Transposed<float, rows, columns> {};

}  // namespace ck_tile
