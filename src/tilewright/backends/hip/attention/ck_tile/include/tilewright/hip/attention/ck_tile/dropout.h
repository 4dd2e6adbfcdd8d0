// Dropout as <tilewright/philox.h> states it, in the stead of CK Tile's, whose numbers depend on lanes and tiles: the mask
// of a seed is the same on every kernel and target.
#pragma once

#if defined(__HIP_DEVICE_COMPILE__)
#include <tilewright/philox.h>

#include <ck_tile/ops/fmha/block/block_dropout.hpp>

namespace tw::hip {

// What CK Tile's kernels make of their arguments, and what its pipelines call.
class StatedDropout {
 public:
  // `threshold` comes in the place of the factor for what is kept.
  __device__ StatedDropout(int sequence, int head, int heads, uint64_t seed, uint64_t offset, float threshold, uint8_t,
                           bool)
      : stated_{uint32_t(threshold), uint32_t(seed), uint32_t(seed >> 32) ^ uint32_t(offset >> 32), uint32_t(offset),
                65536.0f / (65536.0f - threshold)},
        sequence_head_(uint32_t(sequence * heads + head)) {}

  // Numbers are not stored: all there is to know is the block's first row.
  template <class BlockGemm, bool forward = true, class Window>
  static __device__ int MakeRandvalDramWindow(Window &window, int) {
    return window.get_window_origin().at(ck_tile::number<0>{});
  }

  // One draw decides eight columns: 32 neighbours are of four draws, and a lane has every column of a pair.  Bits of a
  // column that say which element of the lane it is are no bits that say which lane, so what elements share a draw is
  // known here, and the first of them draws.
  template <class BlockGemm, class Weight, class Stored, class Tile>
  __device__ void Run(void *, int first_key, Tile &weights, int first_row) const {
    static_assert(BlockGemm::BlockGemmShape::kN % 32 == 0, "a draw would be of two tiles");
    constexpr auto spans = Tile::get_distributed_spans();
    for_each(spans[ck_tile::number<0>{}], [&](auto i) __attribute__((always_inline)) {
      Philox drawn[4];
      for_each(spans[ck_tile::number<1>{}], [&](auto j) __attribute__((always_inline)) {
        constexpr auto at = ck_tile::make_tuple(decltype(i){}, decltype(j){});
        constexpr int own = own_column<Tile>(at), of = own % 8 / 2;
        const auto place = ck_tile::get_x_indices_from_distributed_indices(weights.get_tile_distribution(), at);
        const auto column = uint32_t(first_key + place.at(ck_tile::number<1>{}));
        if constexpr (own % 32 / 8 == 0 && own % 2 == 0)
          drawn[of] = stated_.draw(sequence_head_, uint32_t(first_row + place.at(ck_tile::number<0>{})), column);
        // Which word depends on the lane: values are picked, for registers have no places to count.
        const uint32_t w0 = drawn[of].word[0], w1 = drawn[of].word[1], w2 = drawn[of].word[2], w3 = drawn[of].word[3];
        const uint32_t low = column & 8 ? w1 : w0, high = column & 8 ? w3 : w2, word = column & 16 ? high : low;
        const bool kept = (word >> (own % 2 * 16) & 0xffffu) >= stated_.threshold;
        weights(at) = kept ? weights[at] * stated_.keep : Weight(0);
      });
    });
  }

 private:
  // CK Tile's own sweeps are not inlined around so much code, and what they are given goes through memory.
  template <int... lengths, class Do>
  static __device__ __forceinline__ void for_each(ck_tile::tile_distributed_span<lengths...>, const Do &what) {
    in_turn<ck_tile::sequence<lengths...>>(what, std::make_integer_sequence<int, (lengths * ...)>{});
  }
  template <class Lengths, class Do, int... n>
  static __device__ __forceinline__ void in_turn(const Do &what, std::integer_sequence<int, n...>) {
    (what(number_to_index<Lengths, n>(std::make_integer_sequence<int, Lengths::size()>{})), ...);
  }
  // Element n in the order of a sweep, the last digit first.
  template <class Lengths, int n, int... digit>
  static constexpr auto number_to_index(std::integer_sequence<int, digit...>) {
    return ck_tile::tile_distributed_index<(n / after<Lengths, digit>() % Lengths::at(digit))...>{};
  }
  template <class Lengths, int digit> static constexpr int after() {
    int found = 1;
    for (int i = digit + 1; i < int(Lengths::size()); ++i) found *= Lengths::at(i);
    return found;
  }

  // The column of an element in a tile, of the first lane.
  template <class Tile, class Indices> static constexpr int own_column(Indices) {
    constexpr auto dealt = Tile::get_tile_distribution();
    constexpr auto ys = dealt.get_y_indices_from_distributed_indices(Indices{});
    // Waves and lanes, or lanes alone where a block has one wave.
    const ck_tile::array<ck_tile::index_t, dealt.get_num_of_dimension_p()> first{0};
    const auto place = ck_tile::make_tensor_adaptor_coordinate(
        dealt.get_ps_ys_to_xs_adaptor(),
        ck_tile::container_concat(first, ck_tile::to_array<ck_tile::index_t, ys.size()>(ys)));
    return place.get_bottom_index().at(ck_tile::number<1>{});
  }

  Dropout stated_;
  uint32_t sequence_head_;
};

}  // namespace tw::hip

// CK Tile's headers that come after this one mean ours.
#define BlockDropout tw::hip::StatedDropout
#endif
