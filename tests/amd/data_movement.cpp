// Runs on the host what CK Tile's headers do with data in a lane's registers.  The functions are __device__ in the
// headers: those that come in the two forms, one for the host, are read first, the rest are made for both.
// Prints a line for each mistake.  What is asked is in "asked.h", written by test_data_movement.py.
#include <hip/hip_runtime.h>
#include <stdint.h>

// v_perm_b32, as the manual has it for selectors 0 to 7.
inline __host__ __device__ int32_t permuted(uint32_t high, uint32_t low, uint32_t digits) {
  const uint64_t all = uint64_t(high) << 32 | low;
  uint32_t found = 0;
  for (int i = 0; i < 4; ++i) found |= uint32_t(all >> 8 * (digits >> 8 * i & 7) & 255) << 8 * i;
  return found;
}
#define __builtin_amdgcn_perm permuted
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0

#include <ck_tile/core/algorithm/coordinate_transform.hpp>
#include <ck_tile/core/numeric/type_convert.hpp>
#undef CK_TILE_DEVICE
#define CK_TILE_DEVICE inline __host__ __device__
#include <ck_tile/core.hpp>
#ifndef AS_THE_HEADERS_HAVE_IT
#include <tilewright/hip/ck_tile_fp32.h>
#include <tilewright/hip/ck_tile_mends.h>
#endif
#include <ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp>
#include <tilewright/hip/packed.h>

#include <cstdio>
#include <cstring>

using ck_tile::index_t;
using ck_tile::number;

static int mistakes = 0;
static void say(bool right, const char *what, int a, int b, int c) {
  if (right) return;
  ++mistakes;
  std::printf("%s %d %d %d\n", what, a, b, c);
}

template <int bytes> struct Word;
template <> struct Word<1> {
  using type = uint8_t;
};
template <> struct Word<2> {
  using type = uint16_t;
};
template <> struct Word<4> {
  using type = uint32_t;
};
template <class S> uint32_t bits(S x) {
  typename Word<sizeof(S)>::type found;
  std::memcpy(&found, &x, sizeof(S));
  return found;
}
template <class S> S made(uint32_t value) {
  auto word = typename Word<sizeof(S)>::type(value);
  S found;
  std::memcpy(&found, &word, sizeof(S));
  return found;
}
// Another number for each place, in all bytes of the element.
template <class S> uint32_t marked(int at) { return bits(made<S>(uint32_t(at) * 0x01010101u ^ 0x5a3c0000u)); }

// `rows` vectors of `columns` elements transposed.
template <class S, index_t rows, index_t columns> void vectors() {
  ck_tile::thread_buffer<ck_tile::array<S, columns>, rows> x;
  ck_tile::thread_buffer<ck_tile::array<S, rows>, columns> y;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) x(r)(c) = made<S>(marked<S>(r * columns + c));
  ck_tile::transpose_vectors<S, rows, columns>{}(x, y);
  bool right = true;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) right = right && bits<S>(y(c)(r)) == marked<S>(r * columns + c);
  say(right, "transpose_vectors", int(sizeof(S)), rows, columns);
}

// A whole tile of `lines` by `extent` elements, loaded `width` at a time by `lanes`, transposed in registers: every lane
// must hold at each place the element whose coordinates the transposed tile names there.
template <class S, index_t lanes, index_t lines, index_t extent, index_t width> void tile() {
  using Pattern = ck_tile::TileDistributionEncodingPattern2D<lanes, lines, extent, width,
                                                             ck_tile::tile_distribution_pattern::thread_raked, 1>;
  const auto from = Pattern::Make2DStaticTileDistribution();
  const auto to = Pattern::MakeShuffled2DStaticTileDistribution();
  auto x = ck_tile::make_static_distributed_tensor<S>(from);
  auto y = ck_tile::make_static_distributed_tensor<S>(to);
  constexpr int each = lines * extent / lanes, across = Pattern::X1, along = each / across;
  for (int i = 0; i < each; ++i) x.get_thread_buffer()(i) = made<S>(marked<S>(i));
  ck_tile::transpose_tile2d(y, x);
  bool right = true;
  for (int lane = 0; lane < lanes; ++lane)
    for (int i = 0; i < each; ++i) {
      const int transposed = i % across * along + i / across;
      const auto here = from.get_ps_ys_to_xs_adaptor().calculate_bottom_index(
          ck_tile::make_multi_index(lane / 64, lane % 64, i / across, i % across));
      const auto there = to.get_ps_ys_to_xs_adaptor().calculate_bottom_index(
          ck_tile::make_multi_index(lane / 64, lane % 64, transposed / along, transposed % along));
      right = right && here[number<0>{}] == there[number<1>{}] && here[number<1>{}] == there[number<0>{}];
      right = right && bits<S>(y.get_thread_buffer()[transposed]) == marked<S>(i);
    }
  say(right, "transpose_tile2d", int(sizeof(S)), lanes, width);
}

// Where `pack` puts an element of B is where the matrix instruction's lane looks for it.
template <class S, class Sum, index_t columns, index_t depth> void packed() {
  using Wave = ck_tile::WarpGemmMfmaDispatcher<S, S, Sum, columns, columns, depth, false>;
  constexpr int run = columns * depth / 64, panels = 2, blocks = 3;
  const auto lanes = typename Wave::BWarpDstr{};
  bool right = run == Wave::kKPerThread;
  for (int at = 0; at < panels * blocks * columns * depth; ++at) {
    const auto found = tw::hip::packed_place<columns, depth>(at, blocks * depth);
    const int block = at / (columns * depth), lane = at % (columns * depth) / run;
    const auto wanted =
        lanes.get_ps_ys_to_xs_adaptor().calculate_bottom_index(ck_tile::make_multi_index(lane, at % run));
    right = right && found.column == block / blocks * columns + wanted[number<0>{}];
    right = right && found.k == block % blocks * depth + wanted[number<1>{}];
  }
  say(right, "packed", int(sizeof(S)), columns, depth);
}

// A lane's buffer read and written in pieces.
template <class S, index_t count, index_t width> void buffer() {
  using Piece = ck_tile::array<S, width>;
  ck_tile::thread_buffer<S, count> x, y;
  for (int i = 0; i < count; ++i) x(i) = made<S>(marked<S>(i));
  const auto &fixed = x;
  bool right = true;
  ck_tile::static_for<0, count / width, 1>{}([&](auto piece) {
    const Piece one = fixed.template get_as<Piece>(number<piece>{});
    const Piece other = x.template get_as<Piece>(number<piece>{});
    const auto whole = fixed.template get_as<Piece>();
    y.template set_as<Piece>(number<piece>{}, one);
    for (int i = 0; i < width; ++i) {
      const uint32_t wanted = marked<S>(piece * width + i);
      right = right && bits<S>(one[i]) == wanted && bits<S>(other[i]) == wanted && bits<S>(whole[piece][i]) == wanted;
    }
  });
  for (int i = 0; i < count; ++i) right = right && bits<S>(y[i]) == marked<S>(i);
  say(right, "thread_buffer", int(sizeof(S)), count, width);
}

// Sums become results to nearest, halves to even; NaN stays NaN.
static uint32_t nearest(uint64_t magnitude, int cut) {
  const uint64_t half = uint64_t(1) << (cut - 1), rest = magnitude & (2 * half - 1), kept = magnitude >> cut;
  return uint32_t(kept + (rest > half || (rest == half && (kept & 1))));
}
static void rounded(uint32_t word) {
  const float x = made<float>(word);
  const uint32_t got = bits(ck_tile::type_convert<ck_tile::bf16_t>(x)), sign = word >> 31 << 15;
  const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
  const bool right = nan ? (got & 0x7fffu) > 0x7f80u : got == (sign | nearest(word & 0x7fffffffu, 16));
  say(right, "float to bf16", int(word), int(got), 0);
  const float back = ck_tile::type_convert<float>(made<ck_tile::bf16_t>(word >> 16));
  say(bits(back) == word >> 16 << 16, "bf16 to float", int(word), 0, 0);
  const _Float16 wanted = _Float16(x);
  const auto half = ck_tile::type_convert<ck_tile::half_t>(x);
  say(nan || bits(wanted) == bits(half), "float to half", int(word), 0, 0);
}

int main() {
#include "asked.h"
  uint32_t word = SEED;
  for (int i = 0; i < 1 << 20; ++i) {
    word = word * 1664525u + 1013904223u;
    rounded(word ^ word >> 15);
    rounded((word & 0xffff0000u) | 0x8000u);  // halfway
  }
  for (uint32_t exponent = 0; exponent < 512; ++exponent)
    for (uint32_t rest : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0x7fffffu}) rounded(exponent << 23 | rest);
  return mistakes != 0;
}
