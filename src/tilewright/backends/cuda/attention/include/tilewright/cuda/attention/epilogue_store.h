// How results of attention leave: normalised, from the registers, 16 bytes a thread.
#pragma once
#include <tilewright/cuda/attention/scores.h>
#include <tilewright/cuda/primitives/row_store.h>

namespace tw {

// One of the thread's rows.  `to` may be nothing.
template <class S>
TW_GPU void store_out_row(const float (&o)[S::DV / 2], int r, float factor, typename S::O *to, int columns) {
  store_row<S::DV, typename S::O>(o, r, factor, to, columns);
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

template <class S, class Config> TW_GPU void store_tile(const AttentionWsArgs &x, const AttentionItem &item,
                                                        const ThreadRows &rows, const Softmax &softmax,
                                                        const float (&o)[S::DV / 2], const Dropout &dropout) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = finish_row<S, Config>(x, item, rows, softmax, r, dropout);
    store_out_row<S>(o, r, factor, place_of_row<S>(x, item, rows, r), int(x.x.head_v));
  }
}

}  // namespace tw
