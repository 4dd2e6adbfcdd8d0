// What a product of two tiles leaves in registers, as an operand of the next one.
#pragma once
#include <type_traits>

#include <tilewright/hip/matrix.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// Scores (or what became of them) as an operand of the next product: what a lane has of a line, which is what an instruction
// takes, because the other operand lies in the order of `Order`.  RDNA 3 takes all 16 of a block in every lane, so that
// halves of a wave exchange.  `lines`: of a tile; Unit: the product that made the scores.
template <class Unit, class M, int lines> struct ScoreOperand {
  using Atom = typename Unit::Atom;
  using Accumulators = typename Unit::Accumulators;
  static constexpr bool halves = matrix_groups == 1;
  // Blocks of 16 of a k-block: those that an instruction takes (two on gfx1250), and two where a lane then reads 16 bytes of a
  // line of the other operand at once.
  static constexpr bool two = Unit::accum * int(sizeof(M)) < Unit::atom || (matrix_groups == 4 && sizeof(M) == 2);
  static constexpr int blocks = !halves && two && lines % 32 == 0 ? 2 : 1;
  static constexpr int held = blocks * Unit::accum * (halves ? 2 : 1), steps = lines / (16 * blocks);
  static constexpr int atoms = held * int(sizeof(M)) / Unit::atom;
  static_assert(atoms > 0 && atoms * Unit::atom == held * int(sizeof(M)), "a tile is no whole instructions");
  struct Fragment {
    typename Atom::Lines v[atoms];
  };
  struct Elements {
    M v[held];
  };
  static_assert(sizeof(Elements) == sizeof(Fragment), "a fragment is what a lane holds");

  struct Order {
    static TW_GPU int place(int key) {
      constexpr int near = Unit::accum;  // neighbours that a lane has of a block
      return blocks == 2 ? key / 32 * 32 + key % 16 / near * 2 * near + key % 32 / 16 * near + key % near : key;
    }
  };
  static TW_GPU int lane() { return int(threadIdx.x) % Unit::wave; }
  // The first place of a k-block that a lane reads of a line of the other operand.
  static TW_GPU int first(int step) { return step * 16 * blocks + (halves ? 0 : lane() / 16 * held); }

  static TW_GPU M weight(float x) {
    if constexpr (std::is_same_v<M, bf16>) {
      const uint32_t bits = __float_as_uint(x);  // a NaN is in the sum too, and comes out by it
      return bf16{uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
    } else {
      M y;
      round_to(x, y);
      return y;
    }
  }
  static TW_GPU Fragment of(const Accumulators (&scores)[lines / 16], int step) {
    Elements some;
    if constexpr (halves) exchanged(scores[step], some);
    else {
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int i = 0; i < Unit::accum; ++i) some.v[b * Unit::accum + i] = weight(scores[step * blocks + b][i]);
    }
    return __builtin_bit_cast(Fragment, some);
  }
  static TW_GPU void multiply(const Fragment &values, const Fragment &weights, Accumulators &sum) {
#pragma unroll
    for (int i = 0; i < atoms; ++i) sum = Atom::multiply(values.v[i], weights.v[i], sum);
  }

 private:
  // Lanes below 16 have the even keys of a block, the others the odd ones.
  static TW_GPU void exchanged(const Accumulators &accum, Elements &some) {
    struct Two {
      M v[2];
    };
#pragma unroll
    for (int w = 0; w < Unit::accum / 2; ++w) {
      const uint32_t own = __builtin_bit_cast(uint32_t, Two{{weight(accum[2 * w]), weight(accum[2 * w + 1])}});
      const uint32_t other = lane_at(own, lane() ^ 16);
      const uint32_t even = lane() < 16 ? own : other, odd = lane() < 16 ? other : own;
      const Two first = __builtin_bit_cast(Two, (even & 0xffffu) | odd << 16),
                second = __builtin_bit_cast(Two, even >> 16 | (odd & 0xffff0000u));
      some.v[4 * w] = first.v[0], some.v[4 * w + 1] = first.v[1];
      some.v[4 * w + 2] = second.v[0], some.v[4 * w + 3] = second.v[1];
    }
  }
};

}  // namespace tw::hip
#endif
