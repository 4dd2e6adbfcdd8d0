// Dropout as <tilewright/philox.h> states it, in the stead of CK Tile's, whose numbers depend on lanes and tiles.
#pragma once

#if defined(__HIP_DEVICE_COMPILE__)
#include <tilewright/philox.h>

namespace tw::hip {

// What CK Tile's backward kernels make of their arguments, and what its pipelines call: entries that are dropped become
// negative, and their size is still read.
class StatedDropoutBackward {
 public:
  static constexpr bool IsDropout = true, IsStoreRandval = false;

  // `seed` and `offset` are what `Dropout` keeps of them; `keep` is the factor of what is kept.
  __device__ StatedDropoutBackward(int sequence, int head, int heads, uint64_t seed, uint64_t offset, float keep,
                                   uint8_t)
      : stated_{uint32_t(65536.0f - 65536.0f / keep + 0.5f), uint32_t(seed), uint32_t(seed >> 32), uint32_t(offset),
                keep},
        sequence_head_(uint32_t(sequence * heads + head)) {}

  template <class BlockGemm, bool forward = true, class Window>
  static __device__ int MakeRandvalDramWindow(Window &, int) {
    return 0;  // numbers are not stored
  }

  template <class BlockGemm, class Stored, class Tile>
  __device__ void Run(int first_row, int first_key, Tile &weights, int) const {
    constexpr auto spans = Tile::get_distributed_spans();
    ck_tile::sweep_tile_span(spans[ck_tile::number<0>{}], [&](auto i) {
      ck_tile::sweep_tile_span(spans[ck_tile::number<1>{}], [&](auto j) {
        constexpr auto at = ck_tile::make_tuple(i, j);
        const auto place = ck_tile::get_x_indices_from_distributed_indices(weights.get_tile_distribution(), at);
        const auto row = uint32_t(first_row + place.at(ck_tile::number<0>{}));
        const auto key = uint32_t(first_key + place.at(ck_tile::number<1>{}));
        const Philox drawn = stated_.draw(sequence_head_, row, key);
        // Which word depends on the lane: values are picked, for registers have no places to count.
        const uint32_t low = key & 8 ? drawn.word[1] : drawn.word[0], high = key & 8 ? drawn.word[3] : drawn.word[2];
        const bool kept = ((key & 16 ? high : low) >> (key % 2 * 16) & 0xffffu) >= stated_.threshold;
        weights(at) = kept ? weights[at] : -weights[at];
      });
    });
  }

 private:
  Dropout stated_;
  uint32_t sequence_head_;
};

}  // namespace tw::hip
#endif
