// What a consumer warpgroup does to scores beyond their softmax: soft caps, what is added to them, masks of bytes and
// dropout, and the gradient of a bias.  A thread has two keys, 8 apart, and of each block of eight rows two neighbours.
#pragma once
#include <tilewright/cuda/attention_backward/ws/shared.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/fast_math.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// Which of a thread's entries dropout keeps: a bit for each, of rows that are even and odd apart.
template <class S> struct BackwardKept {
  static constexpr int words = (S::SN / 8 + 7) / 8;
  uint32_t bits[2][words];
  TW_GPU bool keeps(int i, int h, int e) const { return bits[e][i / 8] >> (i % 8 * 4 + h * 2) & 1; }
};

template <class S, class Config> struct BackwardScored {
  using T = typename S::T;
  const AttentionBackwardWsArgs &x;
  const BackwardItem &item;
  const int head;      // of queries
  const int key, row;  // the first that the thread has

  TW_GPU BackwardScored(const AttentionBackwardWsArgs &args, const BackwardItem &of, int of_queries, int tile, int who)
      : x(args),
        item(of),
        head(of_queries),
        key(of.tile * S::BN + keys_before<S>(who) + int(threadIdx.x % 128) / 32 * 16 + int(threadIdx.x % 32) / 4),
        row(tile * S::BM + rows_before<S>(who) + int(threadIdx.x % 4) * 2) {}

  // Draws decide two rows of four keys each: of two lanes that have neighbouring keys each draws for half of the rows.
  TW_GPU void draw(BackwardKept<S> &kept) const {
    Dropout dropout = x.drops;
    if (x.x.seed_at) {
      const uint64_t *at = static_cast<const uint64_t *>(x.x.seed_at);
      const uint64_t seed = at[0], offset = at[1];
      dropout.seed_low = uint32_t(seed), dropout.seed_high = uint32_t(seed >> 32) ^ uint32_t(offset >> 32);
      dropout.offset_low = uint32_t(offset);
    }
    const int lane = int(threadIdx.x % 32), odd = lane / 4 % 2;
    const bool upper = key % 32 >= 16;
    const uint32_t of = uint32_t(item.sequence * int(x.x.heads_q) + head);
#pragma unroll
    for (int n = 0; n < BackwardKept<S>::words; ++n) {
      uint32_t mine = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (n * 8 + j < S::SN / 8) {
          const Philox drawn = dropout.draw(of, uint32_t(row + (n * 8 + j) * 8 + odd), uint32_t(key));
          const uint32_t two[2] = {upper ? drawn.word[2] : drawn.word[0], upper ? drawn.word[3] : drawn.word[1]};
#pragma unroll
          for (int b = 0; b < 4; ++b)
            if ((two[b / 2] >> b % 2 * 16 & 0xffffu) >= dropout.threshold) mine |= 1u << (j * 4 + b);
        }
      const uint32_t other = lane_at(mine, lane ^ 4);
      kept.bits[0][n] = (odd ? other : mine) >> odd, kept.bits[1][n] = (odd ? mine : other) >> odd;
    }
  }

  // Weights, rounded, as they multiply values; and before dropout, times the slope of a cap, in place of the scores.
  // `seen`: rows that see each of the two keys, counted from the first.
  template <class Seen> TW_GPU void weigh(float (&s)[S::SN / 2], uint32_t (&p)[S::SN / 16][4], const float *lse,
                                          const Seen (&seen)[2], const BackwardKept<S> &kept) const {
    float slope = 0, apart = 0;
    if constexpr (Config::bias == AttentionBias::alibi) {
      slope = static_cast<const float *>(x.x.alibi)[item.sequence * x.x.alibi_batch + head * x.x.alibi_head];
      const bool ends = x.x.bottom_right || (x.left == backward_unbounded && x.right == backward_unbounded);
      apart = float(row + (ends ? item.keys - item.rows : 0) - key);
    }
#pragma unroll
    for (int i = 0; i < S::SN / 8; ++i) {
      const float2 l = *reinterpret_cast<const float2 *>(lse + i * 8);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float weight[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float &score = s[i * 4 + h * 2 + e];
          const int at = i * 8 + e;
          bool hidden = at < seen[h].begin || at >= seen[h].end;
          if constexpr (Config::masked) hidden = hidden || !read<uint8_t>(x.x.mask, x.x.mask_strides, at, h * 8);
          float value = score, slant = 1;
          if constexpr (backward_scored<Config>) value *= x.scale;
          if constexpr (Config::softcap) {
            const float transposed = 1.0f - 2.0f * reciprocal_fast(exp2_fast(value * x.over_cap * 2.88539008f) + 1.0f);
            value = transposed * x.cap, slant = 1.0f - transposed * transposed;
          }
          if constexpr (Config::bias == AttentionBias::tensor)
            if (!hidden) value += to_float(read<typename Config::Aux>(x.x.bias, x.x.bias_strides, at, h * 8));
          if constexpr (Config::bias == AttentionBias::alibi) value -= slope * fabsf(apart + float(at - h * 8));
          const float found = hidden ? 0.0f : exp2_fast(value * x.fold - (e ? l.y : l.x));
          score = found * slant, weight[e] = found;
          if constexpr (Config::dropout) weight[e] = kept.keeps(i, h, e) ? found * x.drops.keep : 0.0f;
        }
        p[i / 2][i % 2 * 2 + h] = pair(T{}, weight[0], weight[1]);
      }
    }
  }

  // What dropout does to the gradients of weights.
  TW_GPU void drop(float (&dp)[S::SN / 2], const BackwardKept<S> &kept) const {
#pragma unroll
    for (int i = 0; i < S::SN / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) dp[i * 4 + j] = kept.keeps(i, j / 2, j % 2) ? dp[i * 4 + j] * x.drops.keep : 0.0f;
  }

  // The gradients of scores are those of what was added to them.
  TW_GPU void store_bias(const float (&ds)[S::SN / 2]) const {
#pragma unroll
    for (int i = 0; i < S::SN / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = i * 8 + j % 2, beside = j / 2 * 8;
        if (row + at >= item.rows || key + beside >= item.keys) continue;
        float *to = static_cast<float *>(x.x.dbias) + place(x.x.dbias_strides, at, beside);
        if (x.dbias_adds) atomicAdd(to, ds[i * 4 + j]);
        else *to = ds[i * 4 + j];
      }
  }

 private:
  TW_GPU int64_t place(const int64_t (&strides)[4], int at, int beside) const {
    return item.sequence * strides[0] + head * strides[1] + int64_t(row + at) * strides[2] +
           int64_t(key + beside) * strides[3];
  }
  // An entry of a table that has one for each row and key.
  template <class E> TW_GPU E read(const void *base, const int64_t (&strides)[4], int at, int beside) const {
    return static_cast<const E *>(base)[place(strides, at, beside)];
  }
};

}  // namespace tw
#endif
