// How results of attention leave: normalised, from the registers, 16 bytes a thread.
//
// The four lanes that have a row turn blocks of columns among themselves, so that each has eight that are neighbours and
// the four write 64 bytes.  This needs no shared memory, and serves rows that lie anywhere.
#pragma once
#include <tilewright/cuda/attention/scores.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// Of four lanes with four words each, lane t gets the t-th of all.
TW_GPU void turn_words(uint32_t (&w)[4]) {
  const int lane = int(threadIdx.x % 32);
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int i = bit == 1 ? n * 2 : n;
      const bool upper = lane & bit;
      const uint32_t got = lane_at(upper ? w[i] : w[i + bit], lane ^ bit);
      if (upper) w[i] = got;
      else w[i + bit] = got;
    }
}

// One of the thread's rows.  `to` may be nothing.
template <class S>
TW_GPU void leave_row(const float (&o)[S::DV / 2], int r, float factor, typename S::O *to, int columns) {
  const int lane = int(threadIdx.x % 4);
  const auto times = [factor](float value) { return factor == 0 ? 0.0f : value * factor; };
  if constexpr (sizeof(typename S::O) == 2) {
#pragma unroll
    for (int i = 0; i < S::DV / 32; ++i) {
      uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        w[j] = pair(typename S::O{}, times(o[i * 16 + j * 4 + r * 2]), times(o[i * 16 + j * 4 + r * 2 + 1]));
      turn_words(w);
      const int column = i * 32 + lane * 8;
      if (to && column < columns) *reinterpret_cast<uint4 *>(to + column) = uint4{w[0], w[1], w[2], w[3]};
    }
  } else {
#pragma unroll
    for (int i = 0; i < S::DV / 16; ++i) {  // two lanes turn two blocks
      const float *a = o + i * 8 + r * 2, *b = a + 4;
      const bool upper = lane & 1;
      const float x = times(upper ? a[0] : b[0]), y = times(upper ? a[1] : b[1]);
      const float got_x = lane_xor(x, 1), got_y = lane_xor(y, 1);
      const float own_x = times(upper ? b[0] : a[0]), own_y = times(upper ? b[1] : a[1]);
      const int column = i * 16 + (upper ? 8 : 0) + lane / 2 * 4;
      if (to && column < columns)
        *reinterpret_cast<float4 *>(to + column) =
            upper ? float4{got_x, got_y, own_x, own_y} : float4{own_x, own_y, got_x, got_y};
    }
  }
}

// What the results of one of the thread's rows are multiplied by, and its lse.  `sinks`: the sink logit is in these.
struct FinishedRow {
  float factor, lse;
};
template <class S, class Config> TW_GPU FinishedRow finished_row(const AttentionWsArgs &x, const ThreadRows &rows,
                                                                 const Softmax &softmax, int r, const Dropout &dropout,
                                                                 bool sinks) {
  constexpr float log2_e = 1.44269504f, log_2 = 0.693147181f;
  float sum = softmax.sum[r];
  sum += lane_xor(sum, 1);
  sum += lane_xor(sum, 2);
  float top = softmax.top[r] * x.fold, factor = 1;
  if constexpr (Config::sink) {
    if (sinks && rows.there[r]) {
      const float sink = static_cast<const float *>(x.x.sink)[rows.head[r]] * log2_e, both = fmaxf(top, sink);
      if (both > no_score()) {
        factor = exp2_fast(top - both);
        sum = sum * factor + exp2_fast(sink - both);
        top = both;
      }
    }
  }
  const bool seen = sum > 0 || sum != sum;
  factor = seen ? factor / sum : 0.0f;  // 0: nothing was seen, whatever the values were
  return {Config::dropout ? factor * dropout.keep : factor, seen ? (top + log2f(sum)) * log_2 : no_score()};
}
// The factor; the lse is written.
template <class S, class Config> TW_GPU float finish_row(const AttentionWsArgs &x, const AttentionItem &item,
                                                         const ThreadRows &rows, const Softmax &softmax, int r,
                                                         const Dropout &dropout) {
  const tw_attention_args &a = x.x;
  const FinishedRow done = finished_row<S, Config>(x, rows, softmax, r, dropout, item.split == 0);
  if ((Config::lse || S::Split) && rows.there[r] && threadIdx.x % 4 == 0)
    static_cast<float *>(a.lse)[item.split * a.lse_split + item.sequence * a.lse_batch + rows.head[r] * a.lse_head +
                                item.first_row + rows.position[r]] = done.lse;
  return done.factor;
}

// Where a row's results go, from a column on; nothing where there is no such row.
template <class S> TW_GPU typename S::O *place_of_row(const AttentionWsArgs &x, const AttentionItem &item,
                                                      const ThreadRows &rows, int r, int column = 0) {
  const tw_attention_args &a = x.x;
  if (!rows.there[r]) return nullptr;
  return static_cast<typename S::O *>(a.o) + item.split * a.o_split + item.sequence * a.o_strides.batch +
         (item.first_row + int64_t(rows.position[r])) * a.o_strides.row + rows.head[r] * a.o_strides.head + column;
}

template <class S, class Config> TW_GPU void leave(const AttentionWsArgs &x, const AttentionItem &item,
                                                   const ThreadRows &rows, const Softmax &softmax,
                                                   const float (&o)[S::DV / 2], const Dropout &dropout) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = finish_row<S, Config>(x, item, rows, softmax, r, dropout);
    leave_row<S>(o, r, factor, place_of_row<S>(x, item, rows, r), int(x.x.head_v));
  }
}

}  // namespace tw
