// Who a warp of the mma pipeline of attention is, where its shared memory lies, and how its results leave.
#pragma once
#include <tilewright/cuda/attention/mma/shape.h>
#include <tilewright/cuda/attention/scores.h>
#include <tilewright/cuda/copies/copies.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// Rows of queries, slots, weights that warps share, and where they meet.
template <class S> struct MmaShared {
  char *base = dynamic_shared();
  TW_GPU char *q() const { return base; }
  TW_GPU char *slot(int i) const { return base + S::q_bytes + i * S::slot_bytes; }
  TW_GPU char *p() const { return base + S::q_bytes + S::Slots * S::slot_bytes; }
  TW_GPU float *met(int along, int row) const {
    return reinterpret_cast<float *>(p() + S::p_bytes) + along * S::BM + row;
  }
  TW_GPU float *factors() const { return met(S::WN > 1 ? S::WN : 0, 0); }  // of rows
};

template <class S> struct MmaWarp {
  int lane = thread_index() % 32, down = thread_index() / 32 % S::WM, along = thread_index() / 32 / S::WM;
  TW_GPU int row() const { return down * S::warp_rows; }  // its first, of the block's
  TW_GPU ThreadRows rows(const AttentionWsArgs &x, const AttentionItem &item, int r) const {
    ThreadRows found;
    const int in_all = rows_in_all<S>(x, item);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = item.tile * S::BM + row() + r * 16 + lane / 4 + h * 8;
      found.position[h] = position_of<S>(x, at);
      found.head[h] = S::Packed ? item.head * x.group + at - found.position[h] * x.group : item.head;
      found.there[h] = at < in_all;
    }
    return found;
  }
};

template <class S, class Config> struct MmaEpilogueStore {
  using O = typename S::O;
  const AttentionMmaArgs &x;
  const AttentionItem &item;
  const MmaShared<S> &shared;
  const MmaWarp<S> &me;

  TW_GPU void store_tile(const Softmax (&softmax)[S::R], const float (&o)[S::R][S::warp_columns / 2]) const {
    float accum[S::R * 2];
#pragma unroll
    for (int i = 0; i < S::R * 2; ++i) {
      accum[i] = softmax[i / 2].sum[i % 2];
      accum[i] += lane_xor(accum[i], 1);
      accum[i] += lane_xor(accum[i], 2);
    }
    if constexpr (S::WN > 1) add_up(accum);
#pragma unroll
    for (int r = 0; r < S::R; ++r) {
      const ThreadRows rows = me.rows(x.ws, item, r);
#pragma unroll
      for (int h = 0; h < 2; ++h) store_out_row(rows, h, softmax[r].top[h], accum[r * 2 + h], o[r]);
    }
  }

 private:
  // Of all warps that share the rows.
  TW_GPU void add_up(float (&accum)[S::R * 2]) const {
    block_barrier();
#pragma unroll
    for (int i = 0; i < S::R * 2; ++i)
      if (me.lane % 4 == 0) store_shared(shared.met(me.along, me.row() + me.lane / 4 + i * 8), accum[i]);
    block_barrier();
#pragma unroll
    for (int i = 0; i < S::R * 2; ++i) {
      accum[i] = 0;
#pragma unroll
      for (int w = 0; w < S::WN; ++w) accum[i] += load_shared<float>(shared.met(w, me.row() + me.lane / 4 + i * 8));
    }
  }

  TW_GPU void store_out_row(const ThreadRows &rows, int h, float highest, float sum,
                            const float (&o)[S::warp_columns / 2]) const {
    constexpr float log2_e = 1.44269504f, log_2 = 0.693147181f;
    const tw_attention_args &a = x.ws.x;
    if (!rows.there[h]) return;
    float top = highest * x.ws.fold, factor = 1;
    if constexpr (Config::sink) {
      if (item.split == 0) {
        const float sink = static_cast<const float *>(a.sink)[rows.head[h]] * log2_e, both = fmaxf(top, sink);
        if (both > no_score()) {
          factor = exp2_fast(top - both);
          sum = sum * factor + exp2_fast(sink - both);
          top = both;
        }
      }
    }
    const bool seen = sum > 0 || sum != sum;
    factor = seen ? factor / sum : 0.0f;  // 0: nothing was seen, whatever the values were
    if constexpr (Config::dropout) factor *= dropout_of(a).keep;
    if constexpr (Config::scales == AttentionScales::tensor || Config::scales == AttentionScales::head)
      factor *= scale_at(a.v_scales, item.sequence, rows.head[h] / x.ws.group, 0);
    const int64_t row = item.first_row + rows.position[h], head = rows.head[h];
    if ((Config::lse || S::Split) && me.along == 0 && me.lane % 4 == 0)
      static_cast<float *>(a.lse)[item.split * a.lse_split + item.sequence * a.lse_batch + head * a.lse_head + row] =
          seen ? (top + log2f(sum)) * log_2 : no_score();
    O *to = static_cast<O *>(a.o) + item.split * a.o_split + item.sequence * a.o_strides.batch + row * a.o_strides.row +
            head * a.o_strides.head;
    put(to, o, h, factor);
  }
  // A thread has of each 16 columns two neighbours twice or, where values are spread from bytes, four.
  TW_GPU void put(O *to, const float (&o)[S::warp_columns / 2], int h, float factor) const {
    constexpr bool four = S::narrow && !S::transposed;
    const auto times = [factor](float value) { return factor == 0 ? 0.0f : value * factor; };
#pragma unroll
    for (int j = 0; j < S::warp_columns / 8; ++j) {
      const int first = me.along * S::warp_columns;
      const int column = four ? first + j / 2 * 16 + me.lane % 4 * 4 + j % 2 * 2 : first + j * 8 + me.lane % 4 * 2;
      const float low = four ? o[j / 2 * 8 + h * 2 + j % 2] : o[j * 4 + h * 2];
      const float high = four ? o[j / 2 * 8 + 4 + h * 2 + j % 2] : o[j * 4 + h * 2 + 1];
      put_two(to + column, times(low), times(high), int(x.ws.x.head_v) - column);
    }
  }
  TW_GPU void put_two(O *to, float low, float high, int room) const {
    if (x.wide_o && room > 1) {
      if constexpr (sizeof(O) == 2) *reinterpret_cast<uint32_t *>(to) = pair(O{}, low, high);
      else *reinterpret_cast<float2 *>(to) = float2{low, high};
    } else {
      if (room > 0) round_to(low, to[0]);
      if (room > 1) round_to(high, to[1]);
    }
  }
};

}  // namespace tw
#endif
