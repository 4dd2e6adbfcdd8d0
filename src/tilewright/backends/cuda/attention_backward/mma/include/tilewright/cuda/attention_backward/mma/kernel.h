// Attention's gradients by the mma pipeline: on any GPU with mma.sync and cp.async, with every feature.
#pragma once
#include <tilewright/cuda/attention_backward/mma/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention_backward/clear.h>
#include <tilewright/cuda/attention_backward/mma/tiles.h>

namespace tw {

// A warp, of a block that owns keys (Rows false) or rows.
template <class S, class Config, bool Rows> struct MmaBackward {
  using T = typename S::T;
  static constexpr int parts = S::part / 2;  // scores of a thread
  const AttentionBackwardMmaArgs &x;
  BackwardHead h;
  const int tile, lane = thread_index() % 32, warp = thread_index() / 32, line = warp % S::WO * 16,
                  share = warp / S::WO;
  const MmaBackwardShared<S> shared{};

  TW_GPU MmaBackward(const AttentionBackwardMmaArgs &args, const BackwardHead &head, int number)
      : x(args), h(head), tile(number) {}

  // dk and dv.
  TW_GPU void keys(int head_kv) {
    float dk[S::columns / 2], dv[S::columns_v / 2];
    zero(dk), zero(dv);
    const int key = tile * S::own;
    int low = 0, high = key < h.keys ? h.rows : 0;
    if constexpr (S::Bounded) {
      if (x.right < backward_unbounded) low = max(0, key - h.shift - x.right);
      if (x.left < backward_unbounded && !(S::Sinks && key < int(x.x.sink_keys)))
        high = min(high, min(key + S::own, h.keys) - h.shift + x.left);
    }
    if (low < high) traversal(low / S::met, (high + S::met - 1) / S::met, head_kv, dk, dv);
    store_tile(dv, 1.0f, x.x.dv, x.x.dv_strides, int(x.x.head_v), head_kv, h.first_key, h.keys,
               x.x.starts_k ? h.keys : int(x.x.keys), S::columns_v);
    store_tile(dk, x.scale, x.x.dk, x.x.dk_strides, int(x.x.head_qk), head_kv, h.first_key, h.keys,
               x.x.starts_k ? h.keys : int(x.x.keys), S::columns);
  }
  // dq.
  TW_GPU void rows(int head_kv) {
    float dq[S::columns / 2], none[2];
    zero(dq);
    const int first = tile * S::own, last = min(first + S::own, h.rows) - 1;
    int low = 0, high = first < h.rows ? h.keys : 0;
    if constexpr (S::Bounded) {
      if (x.right < backward_unbounded) high = min(high, last + h.shift + x.right + 1);
      if (x.left < backward_unbounded && !S::Sinks) low = max(0, first + h.shift - x.left);
    }
    if (low < high) traversal(low / S::met, (high + S::met - 1) / S::met, head_kv, dq, none);
    store_tile(dq, x.scale, x.x.dq, x.x.dq_strides, int(x.x.head_qk), h.head, h.first_row, h.rows,
               x.x.starts_q ? h.rows : int(x.x.rows), S::columns);
  }

 private:
  template <int Count> TW_GPU static void zero(float (&accum)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) accum[i] = 0;
  }

  // Tiles that are met from `begin` to `end`, of every query head where keys are owned.  `first` is dq or dk.
  template <int Values>
  TW_GPU void traversal(int begin, int end, int head_kv, float (&first)[S::columns / 2], float (&values)[Values]) {
    const int heads = Rows ? 1 : x.group, each = end - begin, all = each * heads;
    const Dropout dropout = Config::dropout ? dropout_of(x.x) : Dropout{};
    if (Rows) own_numbers();
    bring_own(head_kv);
    bring(0, begin, Rows ? h.head : head_kv * x.group, head_kv);
    commit_copies();
    float slopes = 0;
    for (int n = 0, at = begin, head = Rows ? h.head : head_kv * x.group; n < all; ++n) {
      int next = at + 1, next_head = head;
      if (next == end) next = begin, ++next_head;
      if (n + 1 < all) bring((n + 1) % S::stages, next, next_head, head_kv);
      commit_copies();
      wait_copies<1>();
      block_barrier();
      h.head = head;
      const BackwardEntries<Config> entries(x, h, dropout);
      step(n % S::stages, at * S::met, entries, first, values, slopes);
      if (Config::dalibi && !Rows && next_head != head) store_slope(slopes), slopes = 0;
      block_barrier();
      at = next, head = next_head;
    }
  }

  TW_GPU void bring_own(int head_kv) const {
    if (Rows) {
      bring_lines<S, S::D, S::own>(shared.own_d(), x.x.q, x.x.q_strides, h.sequence, h.first_row, tile * S::own, h.rows,
                                   h.head, int(x.x.head_qk), x.wide_q, x.x.starts_q);
      bring_lines<S, S::DV, S::own>(shared.own_v(), x.x.dout, x.x.dout_strides, h.sequence, h.first_row, tile * S::own,
                                    h.rows, h.head, int(x.x.head_v), x.wide_o, x.x.starts_q);
    } else {
      bring_lines<S, S::D, S::own>(shared.own_d(), x.x.k, x.x.k_strides, h.sequence, h.first_key, tile * S::own, h.keys,
                                   head_kv, int(x.x.head_qk), x.wide_k, x.x.starts_k);
      bring_lines<S, S::DV, S::own>(shared.own_v(), x.x.v, x.x.v_strides, h.sequence, h.first_key, tile * S::own,
                                    h.keys, head_kv, int(x.x.head_v), x.wide_v, x.x.starts_k);
    }
  }
  TW_GPU void bring(int stage, int at, int head, int head_kv) const {
    if (Rows) {
      bring_lines<S, S::D, S::met>(shared.met_d(stage), x.x.k, x.x.k_strides, h.sequence, h.first_key, at * S::met,
                                   h.keys, head_kv, int(x.x.head_qk), x.wide_k, x.x.starts_k);
      bring_lines<S, S::DV, S::met>(shared.met_v(stage), x.x.v, x.x.v_strides, h.sequence, h.first_key, at * S::met,
                                    h.keys, head_kv, int(x.x.head_v), x.wide_v, x.x.starts_k);
      return;
    }
    bring_lines<S, S::D, S::met>(shared.met_d(stage), x.x.q, x.x.q_strides, h.sequence, h.first_row, at * S::met,
                                 h.rows, head, int(x.x.head_qk), x.wide_q, x.x.starts_q);
    bring_lines<S, S::DV, S::met>(shared.met_v(stage), x.x.dout, x.x.dout_strides, h.sequence, h.first_row, at * S::met,
                                  h.rows, head, int(x.x.head_v), x.wide_o, x.x.starts_q);
    const int64_t prepared = prepared_at(x.x, h.sequence, head);
    for (int i = thread_index(); i < S::met; i += S::threads) {
      const int row = at * S::met + i, there = row < h.rows ? 4 : 0;
      const int64_t from = prepared + (there ? row : 0);
      copy_async<4>(reinterpret_cast<char *>(shared.lse(stage) + i),
                    reinterpret_cast<const char *>(static_cast<const float *>(x.x.lse_log2) + from), there);
      copy_async<4>(reinterpret_cast<char *>(shared.delta(stage) + i),
                    reinterpret_cast<const char *>(static_cast<const float *>(x.x.delta) + from), there);
    }
  }
  // Of the two rows of a thread, where rows are owned.
  float own_lse[2], own_delta[2];
  TW_GPU void own_numbers() {
    const int64_t prepared = prepared_at(x.x, h.sequence, h.head);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = tile * S::own + line + lane / 4 + r * 8;
      own_lse[r] = row < h.rows ? static_cast<const float *>(x.x.lse_log2)[prepared + row] : 0.0f;
      own_delta[r] = row < h.rows ? static_cast<const float *>(x.x.delta)[prepared + row] : 0.0f;
    }
  }

  template <int Values> TW_GPU void step(int stage, int met, const BackwardEntries<Config> &entries,
                                         float (&first)[S::columns / 2], float (&values)[Values], float &slopes) {
    float s[parts], dp[parts];
    multiply_lines<T, S::D, S::part>(s, shared.own_d() + line * S::d_pitch, S::d_pitch,
                                     shared.met_d(stage) + share * S::part * S::d_pitch, S::d_pitch);
    multiply_lines<T, S::DV, S::part>(dp, shared.own_v() + line * S::v_pitch, S::v_pitch,
                                      shared.met_v(stage) + share * S::part * S::v_pitch, S::v_pitch);
    judge(s, dp, stage, met + share * S::part, entries, slopes);
    if constexpr (S::WC > 1) {
      if (!Rows) store_weights(shared.weights(), s);
      store_weights(shared.gradients(), dp);
      block_barrier();
    }
#pragma unroll
    for (int i = 0; i < S::met / 16; ++i) {
      uint32_t p[4], g[4];
      operand_of(p, s, shared.weights(), i);
      operand_of(g, dp, shared.gradients(), i);
      if constexpr (!Rows)
        add_lines<T, S::columns_v>(values, p, shared.met_v(stage) + i * 16 * S::v_pitch + share * S::columns_v * 2,
                                   S::v_pitch);
      add_lines<T, S::columns>(first, g, shared.met_d(stage) + i * 16 * S::d_pitch + share * S::columns * 2,
                               S::d_pitch);
    }
  }
  // Scores become weights, and gradients of weights those of scores.
  TW_GPU void judge(float (&s)[parts], float (&dp)[parts], int stage, int met, const BackwardEntries<Config> &entries,
                    float &slopes) const {
    const int own = tile * S::own + line + lane / 4;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const int half = i / 2 % 2, at = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int row = Rows ? own + half * 8 : met + at, key = Rows ? met + at : own + half * 8;
      float lse, delta;
      if (Rows) {
        lse = own_lse[half], delta = own_delta[half];
      } else {
        lse = load_shared<float>(shared.lse(stage) + share * S::part + at);
        delta = load_shared<float>(shared.delta(stage) + share * S::part + at);
      }
      bool keeps = true;
      if constexpr (Config::dropout)
        keeps = entries.dropout.keeps(uint32_t(h.sequence * int(x.x.heads_q) + h.head), uint32_t(row), uint32_t(key));
      const BackwardEntry one = entries.at(s[i], dp[i], lse, delta, row, key, keeps);
      s[i] = one.weight, dp[i] = one.gradient;
      if constexpr (Config::dbias && !Rows) entries.store_bias(row, key, one.added);
      if constexpr (Config::dalibi && !Rows) slopes -= one.added * one.distance;
    }
  }
  TW_GPU void store_weights(char *to, const float (&s)[parts]) const {
#pragma unroll
    for (int i = 0; i < parts / 2; ++i)
      store_shared(to + (line + lane / 4 + i % 2 * 8) * S::p_pitch + (share * S::part + i / 2 * 8 + lane % 4 * 2) * 2,
                   pair(T{}, s[i * 2], s[i * 2 + 1]));
  }
  // 16 lines that are met, of all the warps that share what is owned.
  TW_GPU void operand_of(uint32_t (&p)[4], const float (&s)[parts], const char *from, int number) const {
    if constexpr (S::WC > 1) {
      load_matrices(p, from + (line + lane % 16) * S::p_pitch + number * 32 + lane / 16 * 16);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) p[j] = pair(T{}, s[number * 8 + j * 2], s[number * 8 + j * 2 + 1]);
    }
  }
  TW_GPU void store_slope(float slopes) const {
#pragma unroll
    for (int bits = 1; bits < 32; bits *= 2) slopes += lane_xor(slopes, bits);
    if (lane == 0)
      atomicAdd(static_cast<float *>(x.x.dalibi) + h.sequence * x.x.dalibi_batch + h.head * x.x.dalibi_head, slopes);
  }
  // The warp's columns of its lines; those behind a sequence's last that memory has room for are 0.
  template <int Count> TW_GPU void store_tile(const float (&accum)[Count], float factor, void *base,
                                              const tw_attention_strides &strides, int columns, int head, int first,
                                              int count, int room, int width) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = tile * S::own + line + lane / 4 + r * 8;
      if (at >= room) continue;
      T *to = static_cast<T *>(base) + h.sequence * strides.batch + (first + int64_t(at)) * strides.row +
              head * strides.head;
#pragma unroll
      for (int i = 0; i < Count / 2; ++i) {
        const int column = share * width + i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (column < columns) round_to(at < count ? accum[i / 2 * 4 + r * 2 + i % 2] * factor : 0.0f, to[column]);
      }
    }
  }
};

// Rows of packed memory that no sequence has.
template <class S>
TW_GPU void clear_lines(void *base, const tw_attention_strides &strides, int columns, int head, const Unused &unused) {
  for (int part = 0; part < 2; ++part) {
    const Span span = part ? unused.behind : unused.before;
    for (int64_t line = span.begin + thread_index(); line < span.end; line += S::threads)
      for (int i = 0; i < columns; ++i)
        round_to(0.0f, static_cast<typename S::T *>(base)[line * strides.row + head * strides.head + i]);
  }
}

template <class S, class Config, bool Rows> TW_GPU void attention_backward_mma(const AttentionBackwardMmaArgs &x) {
  const tw_attention_backward_args &a = x.x;
  const int tiles = Rows ? x.row_tiles : x.key_tiles, heads = int(Rows ? a.heads_q : a.heads_kv);
  const int z = block_index() / tiles, sequence = z / heads, head = z - sequence * heads;
  const int tile = tiles - 1 - (block_index() - z * tiles), of_keys = Rows ? head / x.group : head;
  const AttentionSequence s = sequence_in_rows(a, sequence);
  const BackwardHead h{sequence,
                       Rows ? head : head * x.group,
                       int(s.first_row),
                       int(s.rows),
                       int(s.first_key),
                       int(s.keys),
                       a.bottom_right ? int(s.keys - s.rows) : 0};
  MmaBackward<S, Config, Rows> warp(x, h, tile);
  if constexpr (Rows) warp.rows(of_keys);
  else warp.keys(of_keys);
  if (tile != 0) return;
  if (Rows && a.starts_q)
    clear_lines<S>(a.dq, a.dq_strides, int(a.head_qk), head,
                   unused_rows(a.starts_q, sequence, a.batch, s.rows, a.rows, a.total_rows));
  if (!Rows && a.starts_k) {
    const Unused unused = unused_rows(a.starts_k, sequence, a.batch, s.keys, a.keys, a.total_keys);
    clear_lines<S>(a.dk, a.dk_strides, int(a.head_qk), head, unused);
    clear_lines<S>(a.dv, a.dv_strides, int(a.head_v), head, unused);
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_BACKWARD_MMA(Config, Symbol) \
  TW_DEVICE_BACKWARD_CLEAR_ADDED(Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionBackwardMma<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::AttentionBackwardMmaArgs x) { \
    tw::attention_backward_mma<tw::AttentionBackwardMma<Config>, Config, false>(x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::AttentionBackwardMma<Config>::threads, 1) \
      Symbol##_dq(const __grid_constant__ tw::AttentionBackwardMmaArgs x) { \
    tw::attention_backward_mma<tw::AttentionBackwardMma<Config>, Config, true>(x); \
  }
#else
#define TW_DEVICE_ATTENTION_BACKWARD_MMA(Config, Symbol)
#endif
