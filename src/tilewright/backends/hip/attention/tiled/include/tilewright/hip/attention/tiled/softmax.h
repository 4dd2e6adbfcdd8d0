// Scores of a wave in registers: what is hidden, what is added, their exponentials, and these as an operand.
//
// A lane's scores are of row lane % 16 of each block of 16 rows; of a block of 16 keys it has `Unit::sums`, and which `key`
// says.
#pragma once
#include <tilewright/gpu/attention_score.h>
#include <tilewright/hip/fast_math.h>
#include <tilewright/hip/score_operand.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// One row of a lane.
template <class Config> struct LaneRow {
  int position, head;  // in its sequence; the query head
  float factor;        // what products are multiplied by beside the scale: those of fp8
  AttentionScore<Config> score;
  float top, sum;  // what exponentials are taken from, and this lane's part of their sum
};

template <class Config> struct ScoreTile {
  using M = typename Config::Multiplied;
  using Unit = Matrix<M, M, Config::head_qk>;
  using Row = LaneRow<Config>;
  static constexpr int row_blocks = Config::row_blocks, key_blocks = Config::tile_n / 16, accum = Unit::accum;
  // Something is done to scores: they are in natural units then.  Else the scale is left to the exponentials.
  static constexpr bool scored = Config::softcap || Config::masked || Config::sink ||
                                 Config::bias != AttentionBias::none || Config::scales != AttentionScales::none;
  // Exponentials are taken from the largest score, or one not far below: results are scaled only where a score is 2^far
  // times larger.  Those of fp16 are 2^raised times as large as they are: gfx90a takes what is subnormal for zero.
  static constexpr float far = 8, raised = std::is_same_v<M, fp16> ? 7 : 0;
  typename Unit::Accumulators v[row_blocks][key_blocks];

  static TW_GPU int lane() { return int(threadIdx.x) % Unit::wave; }
  static TW_GPU int key(int j, int i) { return j * 16 + Unit::row(lane(), i); }
  // The same number, of which the compiler does not know it: places that it worked out before it works out again, instead
  // of holding those of all keys.
  static TW_GPU int forgotten(int number) {
    asm volatile("" : "+s"(number));
    return number;
  }
  // Paced: one block of keys after the other, where the body takes registers.
  template <bool paced = false, class Body> TW_GPU void each(int r, const Body &body) {
#pragma unroll
    for (int j = 0; j < key_blocks; ++j) {
#pragma unroll
      for (int i = 0; i < accum; ++i) {
        float one = v[r][j][i];
        body(one, key(j, i));
        v[r][j][i] = one;
      }
      if constexpr (paced) __builtin_amdgcn_sched_barrier(0);
    }
  }

  // Scores of products: `first` is the tile's first key, `last` the last that there is, `k_factor` that of all keys.
  TW_GPU void become(const tw_attention_args &x, const AttentionSequence &s, const Row (&rows)[row_blocks], int head_kv,
                     int first) {
    const int last = int(s.keys) - 1;
#pragma unroll
    for (int r = 0; r < row_blocks; ++r) {
      const Row &row = rows[r];
      const int start = forgotten(first);
      each<true>(r, [&](float &one, int key) {
        const int at = start + key < last ? start + key : last;
        if constexpr (Config::scales == AttentionScales::block) one *= scale_at(x.k_scales, s.index, head_kv, at);
        if constexpr (Config::scales != AttentionScales::none) one *= row.factor;
        one = row.score.of(one, at);
        if constexpr (Config::masked) one = row.score.shown(at) ? one : minus_infinity();
      });
    }
  }
  TW_GPU void times(float factor) {
#pragma unroll
    for (int r = 0; r < row_blocks; ++r) each(r, [&](float &one, int) { one *= factor; });
  }
  // Keys that a row does not see, of its window; both count from the tile's first key.
  TW_GPU void hide(int r, int begin, int end, int sinks) {
    each(r, [&](float &one, int key) {
      bool hidden = key >= end;
      if constexpr (Config::mask == AttentionMask::window) hidden = hidden || key < begin;
      if constexpr (Config::mask == AttentionMask::generic) hidden = hidden || (key < begin && key >= sinks);
      one = hidden ? minus_infinity() : one;
    });
  }
  // Scores become exponentials; what the row had before must be multiplied by what comes back.
  TW_GPU float weigh(int r, float fold, Row &row) {
    float top = row.top;
    each(r, [&](float &one, int) { top = fmaxf(top, one); });
#pragma unroll
    for (int bits = 16; bits < Unit::wave; bits *= 2) top = fmaxf(top, lane_xor(top, bits));
    const bool higher = (top - row.top) * fold > far;
    if (!higher) top = row.top;
    const float base = top == minus_infinity() ? 0.0f : top * fold;
    const float factor = higher ? exp2_fast(row.top * fold - base) : 1.0f;
    float sum = row.sum * factor;
    each(r, [&](float &one, int) {
      one = exp2_fast(one * fold - (base - raised));
      sum += one;
    });
    row.top = top, row.sum = sum;
    return factor;
  }
  // What dropout drops is 0; what it keeps is scaled with the results.  A draw decides eight columns of 32.
  TW_GPU void drop(int r, const Dropout &dropout, uint32_t sequence_head, const Row &row, int first) {
    constexpr int near = key_blocks < 2 ? 1 : 2, draws = accum < 8 ? 2 : 4;
#pragma unroll
    for (int j = 0; j < key_blocks; j += near)
#pragma unroll
      for (int d = 0; d < draws; ++d) {
        const int some = matrix_groups == 1 ? d : d * 2;
        const Philox drawn = dropout.draw(sequence_head, uint32_t(row.position), uint32_t(first + key(j, some)));
#pragma unroll
        for (int b = 0; b < near; ++b)
#pragma unroll
          for (int i = 0; i < accum; ++i) {
            if ((matrix_groups == 1 ? i % 4 : i / 2) != d) continue;
            const uint32_t column = uint32_t(first + key(j + b, i));
            const uint32_t low = column & 8 ? drawn.word[1] : drawn.word[0];
            const uint32_t high = column & 8 ? drawn.word[3] : drawn.word[2];
            const uint32_t word = column & 16 ? high : low;
            if ((word >> (column % 2 * 16) & 0xffffu) < dropout.threshold) v[r][j + b][i] = 0;
          }
        __builtin_amdgcn_sched_barrier(0);  // one draw after the other: registers are few
      }
  }
};

}  // namespace tw::hip
#endif
