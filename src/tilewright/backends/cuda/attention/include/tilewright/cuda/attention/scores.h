// Scores of a warpgroup in registers: what is hidden, what is added, their exponentials.
//
// As wgmma keeps 64 x N accumulators: a thread has two rows, 8 apart, and of each block of eight columns two that are neighbours.
#pragma once
#include <tilewright/cuda/attention/work_items.h>
#include <tilewright/cuda/primitives/fast_math.h>

namespace tw {

// The two rows of a thread.
struct ThreadRows {
  int position[2], head[2];  // of the row in its sequence; its query head
  bool there[2];
};

template <class S> TW_GPU ThreadRows rows_of_thread(const AttentionWsArgs &x, const AttentionItem &item, int who) {
  ThreadRows rows;
  const int in_all = rows_in_all<S>(x, item);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = item.tile * S::BM + who * 64 + int(threadIdx.x % 128) / 32 * 16 + int(threadIdx.x % 32) / 4 + r * 8;
    rows.position[r] = position_of<S>(x, row);
    rows.head[r] = S::Packed ? item.head * x.group + row - rows.position[r] * x.group : item.head;
    rows.there[r] = row < in_all;
  }
  return rows;
}

TW_GPU float no_score() { return -INFINITY; }

// Tiles of keys that every row of a warpgroup sees wholly.
struct WholeTiles {
  int low, high;
};
template <class S> TW_GPU WholeTiles wholly_seen(const AttentionWsArgs &x, const AttentionItem &item, int who) {
  const int first = item.tile * S::BM + who * 64, shift = shift_of(x, item);
  int begin = 0, end = item.keys;
  if constexpr (S::Bounded) {
    if (x.right < unbounded_window) end = min(end, position_of<S>(x, first) + shift + x.right + 1);
    if (x.left < unbounded_window) begin = max(0, position_of<S>(x, first + 63) + shift - x.left);
  }
  return {(begin + S::BN - 1) / S::BN, max(0, end) / S::BN};
}

// How many tiles of an item come before the first one that any row of a warpgroup sees: under a window, and where there
// are fewer rows than a tile has.  One is met in any case.  Where items are streamed it ends a stream to pass tiles by,
// which costs more than a tile or two: short ones are met wholly.
template <class S> TW_GPU int unseen_tiles(const AttentionWsArgs &x, const AttentionItem &item, int who) {
  if (S::W == 1 || (S::streams && item.tiles.count <= short_stream)) return 0;
  const int first = item.tile * S::BM + who * 64;
  int end = item.keys;
  if (S::Bounded && x.right < unbounded_window)
    end = min(end, position_of<S>(x, first + 63) + shift_of(x, item) + x.right + 1);
  if (first >= rows_in_all<S>(x, item)) end = 0;
  const KeyTiles &tiles = item.tiles;
  const int ahead = tiles.last + 1 - (max(0, end) + S::BN - 1) / S::BN;
  return max(0, min(min(ahead, tiles.window), tiles.count - 1));
}

// Hidden are columns from `end` on, and with a left bound those before `begin` that are no sinks; most windows have none,
// and an instruction for each score is what this costs.
template <class S> TW_GPU void hide(float (&s)[S::BN / 2], const AttentionWsArgs &x, const AttentionItem &item,
                                    const ThreadRows &rows, int key) {
  const int first = key + int(threadIdx.x % 4) * 2, shift = shift_of(x, item), sinks = int(x.x.sink_keys) - first;
  const bool left = S::Bounded && x.left < unbounded_window;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int middle = rows.position[r] + shift;
    const int end =
        (S::Bounded && x.right < unbounded_window ? min(item.keys, middle + x.right + 1) : item.keys) - first;
#pragma unroll
    for (int i = 0; i < S::BN / 4; ++i)
      if (i / 2 * 8 + i % 2 >= end) s[i / 2 * 4 + r * 2 + i % 2] = no_score();
    if (!left) continue;
    const int begin = middle - x.left - first;
#pragma unroll
    for (int i = 0; i < S::BN / 4; ++i) {
      const int at = i / 2 * 8 + i % 2;
      if (at < begin && (!S::Sinks || at >= sinks)) s[i / 2 * 4 + r * 2 + i % 2] = no_score();
    }
  }
}

// x -> cap * tanh(x / cap), as 1 - 2 / (e^2x + 1).
TW_GPU float capped(float x, float cap, float over_cap) {
  return cap - 2.0f * cap * reciprocal_fast(exp2_fast(x * over_cap * 2.88539008f) + 1.0f);
}

// Scale, soft cap, bias and mask, of scores as the multiplication leaves them.
template <class S, class Config> TW_GPU void add_to_scores(float (&s)[S::BN / 2], const AttentionWsArgs &x,
                                                           const AttentionItem &item, const ThreadRows &rows, int key) {
  const tw_attention_args &a = x.x;
  const int column = key + int(threadIdx.x % 4) * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t row = rows.position[r], head = rows.head[r];
    float slope = 0, middle = 0;
    if constexpr (Config::bias == AttentionBias::alibi) {
      const bool ends = a.bottom_right || (x.left == unbounded_window && x.right == unbounded_window);
      middle = float(int(row) + (ends ? item.keys - item.rows : 0));
      if (rows.there[r])
        slope = static_cast<const float *>(a.alibi)[item.sequence * a.alibi_batch + head * a.alibi_head];
    }
    const auto *bias = static_cast<const typename Config::Aux *>(a.bias);
    const auto *mask = static_cast<const uint8_t *>(a.mask);
    if constexpr (Config::bias == AttentionBias::tensor)
      bias += item.sequence * a.bias_strides[0] + head * a.bias_strides[1] + row * a.bias_strides[2];
    if constexpr (Config::masked)
      mask += item.sequence * a.mask_strides[0] + head * a.mask_strides[1] + row * a.mask_strides[2];
#pragma unroll
    for (int i = 0; i < S::BN / 8; ++i)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int at = column + i * 8 + c;
        const bool there = rows.there[r] && at < item.keys;
        float &one = s[i * 4 + r * 2 + c];
        one *= x.scale;
        if constexpr (Config::softcap)
          if (x.cap > 0) one = capped(one, x.cap, x.over_cap);
        if constexpr (Config::bias == AttentionBias::alibi) one -= slope * fabsf(middle - float(at));
        if constexpr (Config::bias == AttentionBias::tensor)
          if (there) one += to_float(bias[at * a.bias_strides[3]]);
        if constexpr (Config::masked)
          if (there && !mask[at * a.mask_strides[3]]) one = no_score();
      }
  }
}

// What exponentials of each row are taken from, and this thread's part of their sum.  That is the largest score, or one
// not far below: results are scaled only where a score is 2^far_below times larger, which is seldom after the first tile.
constexpr float far_below = 8, near_below = 0.8f;
struct Softmax {
  float top[2] = {no_score(), no_score()}, sum[2] = {0, 0};
};

// Scores whose scale is negative, with the other sign.
template <class S> TW_GPU void negate(float (&s)[S::BN / 2]) {
#pragma unroll
  for (int i = 0; i < S::BN / 2; ++i) s[i] = -s[i];
}

// Scores become exponentials; `factor` is what the rows had before must be multiplied by.  2^Larger: times as large as
// they are, for weights of one byte, which end at 2^8.8.
template <class S, int Larger = 0>
TW_GPU void weigh(float (&s)[S::BN / 2], float fold, Softmax &softmax, float (&factor)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Of every fourth column apart: one after another, the instructions would wait for each other.
    float tops[4] = {softmax.top[r], s[r * 2 + 1], s[4 + r * 2], s[4 + r * 2 + 1]};
#pragma unroll
    for (int i = 0; i < S::BN / 4; ++i) tops[i % 4] = fmaxf(tops[i % 4], s[i / 2 * 4 + r * 2 + i % 2]);
    float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    top = fmaxf(top, lane_xor(top, 1));
    top = fmaxf(top, lane_xor(top, 2));
    const bool raised = (top - softmax.top[r]) * fold > (Larger > 0 ? near_below : far_below);
    if (!raised) top = softmax.top[r];
    const float base = top == no_score() ? 0.0f : top * fold;
    factor[r] = raised ? exp2_fast(softmax.top[r] * fold - base) : 1.0f;
    softmax.top[r] = top;
    float accum[4] = {softmax.sum[r] * factor[r], 0, 0, 0};
#pragma unroll
    for (int i = 0; i < S::BN / 4; ++i) {
      float &one = s[i / 2 * 4 + r * 2 + i % 2];
      one = exp2_fast(one * fold - (base - float(Larger)));
      accum[i % 4] += one;
    }
    softmax.sum[r] = (accum[0] + accum[1]) + (accum[2] + accum[3]);
  }
}

// What dropout drops is 0; what it keeps is scaled with the results.
template <class S> TW_GPU void drop(float (&s)[S::BN / 2], const AttentionWsArgs &x, const AttentionItem &item,
                                    const ThreadRows &rows, const Dropout &dropout, int key) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uint32_t sequence_head = uint32_t(item.sequence * int(x.x.heads_q) + rows.head[r]);
    Philox drawn{};
#pragma unroll
    for (int i = 0; i < S::BN / 8; ++i) {
      const uint32_t column = uint32_t(key + i * 8 + int(threadIdx.x % 4) * 2);
      const int quarter = S::BN % 32 == 0 ? i % 4 : int(column % 32 / 8);
      if (i == 0 || quarter == 0) drawn = dropout.draw(sequence_head, uint32_t(rows.position[r]), column);
      const uint32_t word = quarter < 2    ? quarter ? drawn.word[1] : drawn.word[0]
                            : quarter == 2 ? drawn.word[2]
                                           : drawn.word[3];
      if ((word & 0xffffu) < dropout.threshold) s[i * 4 + r * 2] = 0;
      if (word >> 16 < dropout.threshold) s[i * 4 + r * 2 + 1] = 0;
    }
  }
}

}  // namespace tw
