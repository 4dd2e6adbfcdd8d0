// The plain loops of attention: any size, stride, element type and feature.  A block takes one row of one head (of one
// split) at a time and traverses its keys a chunk after the other with a running softmax: a thread scores a key, then all add
// up elements of the values.  Plain on purpose: it is the floor under every problem the others do not take.
#pragma once
#include <tilewright/fp8.h>
#include <tilewright/gpu/attention_score.h>

namespace tw {

struct AttentionLoopsShape {
  static constexpr int threads = 128;
  // Floats of shared memory: a row of q, and weights of a chunk of keys.
  template <class Config> static constexpr int shared_floats =
      Config::family == AttentionFamily::forward || Config::family == AttentionFamily::split ? Config::head_qk + threads
                                                                                             : 0;
  static constexpr int64_t most_blocks = 1 << 20;

  template <class Config> static int64_t units(const typename attention_args_of<Config::family>::type &x) {
    if constexpr (Config::family == AttentionFamily::append) return x.batch * x.rows;
    else if constexpr (Config::family == AttentionFamily::combine) return x.batch * x.heads_q * x.rows;
    else return x.batch * x.heads_q * x.rows * x.splits;
  }
  template <class Config> static unsigned blocks(const typename attention_args_of<Config::family>::type &x) {
    const int64_t all = units<Config>(x);
    return unsigned(all < most_blocks ? all : most_blocks);
  }
};

#ifdef TW_ON_GPU

template <class Config> struct AttentionLoops {
  using Q = typename Config::Q;
  using KV = typename Config::KV;
  using O = typename Config::O;
  static constexpr int chunk = AttentionLoopsShape::threads, bytes = sizeof(KV);
  static constexpr int each = (Config::head_v + chunk - 1) / chunk;  // elements of the result that are a thread's

  const tw_attention_args &x;
  AttentionSequence s;
  int64_t row, head, head_kv, part;
  Span seen;
  AttentionScore<Config> becomes;
  Dropout dropout;

  TW_GPU AttentionLoops(const tw_attention_args &args, int64_t unit) : x(args), dropout{} {
    part = unit % x.splits, unit /= x.splits;
    row = unit % x.rows, unit /= x.rows;
    head = unit % x.heads_q;
    s = sequence_of(x, unit / x.heads_q);
    head_kv = head / (x.heads_q / x.heads_kv);
    seen = window_of(x, s, row);
    becomes = AttentionScore<Config>(x, s, head, row);
    if constexpr (Config::dropout) dropout = dropout_of(x);
  }

  TW_GPU bool sees(int64_t key) const {
    if (key >= seen.end || (key < seen.begin && key >= x.sink_keys)) return false;
    return becomes.shown(key);
  }

  TW_GPU float score(const float *q, int64_t key) const {
    const KeyPlace place = key_place<Config::pages>(x, x.k_strides, s, key, head_kv);
    float value = 0;
    for (int64_t d = 0; d < x.head_qk; ++d)
      value += q[d] * to_float(static_cast<const KV *>(x.k)[k_element<Config::pages, bytes>(place, x.pages.size, d)]);
    if constexpr (Config::scales != AttentionScales::none) value *= scale_at(x.k_scales, s.index, head_kv, key);
    return becomes.of(value, key);
  }

  // All threads of the block; q and weights are shared.
  TW_GPU void run(float *q, float *weights) {
    const float nothing = minus_infinity();
    const int me = int(threadIdx.x);
    __syncthreads();  // the row before is done
    const Q *from = static_cast<const Q *>(x.q) + s.index * x.q_strides.batch + (s.first_row + row) * x.q_strides.row +
                    head * x.q_strides.head;
    float factor = 1;
    if constexpr (Config::scales != AttentionScales::none) factor = scale_at(x.q_scales, s.index, head, row);
    for (int64_t d = me; d < x.head_qk; d += chunk) q[d] = to_float(from[d]) * factor;
    float top = nothing, sum = 0, o[each] = {};
    if constexpr (Config::sink) {
      if (part == 0) top = static_cast<const float *>(x.sink)[head], sum = top == nothing ? 0.0f : 1.0f;
      if (top != top) sum = top;
    }
    const int64_t share = (s.keys + x.splits - 1) / x.splits > 1 ? (s.keys + x.splits - 1) / x.splits : 1;
    const int64_t end = (part + 1) * share < s.keys ? (part + 1) * share : s.keys;
    for (int64_t first = part * share; first < end; first += chunk) {
      const int count = int(end - first < chunk ? end - first : chunk);
      if (first >= seen.end) break;
      if (first + count <= seen.begin && first >= x.sink_keys) continue;
      __syncthreads();  // q is there, and weights are read
      if (me < count) weights[me] = sees(first + me) ? score(q, first + me) : nothing;
      __syncthreads();
      float now = top;
      for (int c = 0; c < count; ++c) now = weights[c] > now || weights[c] != weights[c] ? weights[c] : now;
      if (now == nothing) continue;
      const float old = top == nothing ? 0.0f : two_to_the((top - now) * attention_log2e);
      __syncthreads();
      if (me < count) {
        const float mine = weights[me];
        weights[me] = mine == nothing ? 0.0f : two_to_the((mine - now) * attention_log2e);
      }
      __syncthreads();
      sum *= old, top = now;
      for (int c = 0; c < count; ++c) sum += weights[c];
      add_values(o, old, weights, first, count);
    }
    finish(o, top, sum);
  }

  TW_GPU void add_values(float (&o)[each], float old, const float *weights, int64_t first, int count) const {
    for (int e = 0; e < each; ++e) o[e] *= old;
    for (int c = 0; c < count; ++c) {
      float weight = weights[c];
      if (weight == 0.0f) continue;
      if constexpr (Config::dropout)
        weight = dropout.keeps(uint32_t(s.index * x.heads_q + head), uint32_t(row), uint32_t(first + c))
                     ? weight * dropout.keep
                     : 0.0f;
      if constexpr (Config::scales != AttentionScales::none)
        weight *= scale_at(x.v_scales, s.index, head_kv, first + c);
      if (weight == 0.0f) continue;
      const KeyPlace place = key_place<Config::pages>(x, x.v_strides, s, first + c, head_kv);
      for (int e = 0; e < each; ++e) {
        const int64_t d = threadIdx.x + int64_t(e) * chunk;
        if (d < x.head_v)
          o[e] += weight * to_float(static_cast<const KV *>(x.v)[v_element<Config::pages, bytes>(place, x.head_v, d)]);
      }
    }
  }

  TW_GPU void finish(const float (&o)[each], float top, float sum) const {
    const bool empty = sum == 0.0f;
    O *to = static_cast<O *>(x.o) + part * x.o_split + s.index * x.o_strides.batch +
            (s.first_row + row) * x.o_strides.row + head * x.o_strides.head;
    for (int e = 0; e < each; ++e) {
      const int64_t d = threadIdx.x + int64_t(e) * chunk;
      if (d < x.head_v) round_to(empty ? 0.0f : o[e] / sum, to[d]);
    }
    if constexpr (Config::lse || Config::family == AttentionFamily::split) {
      if (threadIdx.x == 0)
        static_cast<float *>(
            x.lse)[part * x.lse_split + s.index * x.lse_batch + head * x.lse_head + s.first_row + row] =
            empty ? minus_infinity() : top + logf(sum);
    }
  }
};

// One row of one head, its splits combined.
template <class Config> TW_GPU void attention_combine_row(const tw_attention_combine_args &x, int64_t unit) {
  const float nothing = minus_infinity();
  const int64_t row = unit % x.rows, head = unit / x.rows % x.heads_q;
  AttentionSequence s{unit / x.rows / x.heads_q, 0, 0, 0, 0};
  rows_of(x, s);
  if (row >= s.rows) return;
  const float *lse =
      static_cast<const float *>(x.part_lse) + s.index * x.part_lse_batch + head * x.part_lse_head + s.first_row + row;
  const float *parts = static_cast<const float *>(x.parts) + s.index * x.part_strides.batch +
                       (s.first_row + row) * x.part_strides.row + head * x.part_strides.head;
  auto *o = static_cast<typename Config::O *>(x.o) + s.index * x.o_strides.batch +
            (s.first_row + row) * x.o_strides.row + head * x.o_strides.head;
  float top = nothing, sum = 0;
  for (int64_t p = 0; p < x.splits; ++p) {
    const float one = lse[p * x.part_lse_split];
    top = one > top || one != one ? one : top;
  }
  for (int64_t p = 0; p < x.splits && top != nothing; ++p)
    sum += two_to_the((lse[p * x.part_lse_split] - top) * attention_log2e);
  for (int64_t d = threadIdx.x; d < x.head_v; d += AttentionLoopsShape::threads) {
    float value = 0;
    for (int64_t p = 0; p < x.splits && top != nothing; ++p) {
      const float one = lse[p * x.part_lse_split];
      if (one != nothing) value += two_to_the((one - top) * attention_log2e) * parts[p * x.part_split + d];
    }
    round_to(top == nothing ? 0.0f : value / sum, o[d]);
  }
  if constexpr (Config::lse) {
    if (threadIdx.x == 0)
      static_cast<float *>(x.lse)[s.index * x.lse_batch + head * x.lse_head + s.first_row + row] =
          top == nothing ? nothing : top + logf(sum);
  }
}

TW_GPU void round_to(float x, fp8_e4m3 &y) { y.bits = to_e4m3<false>(x); }
TW_GPU void round_to(float x, fp8_e4m3fnuz &y) { y.bits = to_e4m3<true>(x); }

// New rows of a sequence into the cache.
template <class Config> struct AttentionAppend {
  using T = typename Config::Q;
  using KV = typename Config::KV;
  using Aux = typename Config::Aux;
  static constexpr int bytes = sizeof(KV);
  const tw_attention_append_args &x;
  int64_t sequence, row, place;

  TW_GPU AttentionAppend(const tw_attention_append_args &args, int64_t unit)
      : x(args),
        sequence(unit / args.rows),
        row(unit % args.rows),
        place(table_entry(args.lengths, unit / args.rows) + unit % args.rows) {}

  // An element that is not rotated: a copy, or rounded where the cache is narrower.
  static TW_GPU void store(T value, float, T &to) { to = value; }
  template <class Narrow> static TW_GPU void store(T value, float scale, Narrow &to) {
    round_to(to_float(value) / scale, to);
  }
  // Element d of a row of q or k as it is stored.
  template <class To> TW_GPU void element(const T *from, int64_t d, float scale, To &to) const {
    if constexpr (Config::rotary == AttentionRotary::none) {
      store(from[d], scale, to);
    } else {
      if (d >= x.rotary) {
        store(from[d], scale, to);
        return;
      }
      const int64_t half = x.rotary / 2;
      const bool by_halves = Config::rotary == AttentionRotary::half;
      const int64_t pair = by_halves ? d % half : d / 2;
      const bool second = by_halves ? d >= half : d % 2;
      const int64_t other = by_halves ? (second ? d - half : d + half) : d ^ 1;
      const float c = to_float(static_cast<const Aux *>(x.cos)[place * x.table_stride + pair]);
      const float s = to_float(static_cast<const Aux *>(x.sin)[place * x.table_stride + pair]);
      const float mine = to_float(from[d]), its = to_float(from[other]);
      round_to((second ? mine * c + its * s : mine * c - its * s) / scale, to);
    }
  }
  TW_GPU const T *at(const void *base, const tw_attention_strides &s, int64_t head) const {
    return static_cast<const T *>(base) + sequence * s.batch + row * s.row + head * s.head;
  }

  TW_GPU void run() const {
    if (row >= (x.lengths_new ? table_entry(x.lengths_new, sequence) : x.rows)) return;
    if (!cache_has<Config::pages>(x, sequence, place)) return;
    for (int64_t i = threadIdx.x; i < x.heads_kv * x.head_qk; i += AttentionLoopsShape::threads) {
      const int64_t head = i / x.head_qk, d = i % x.head_qk;
      const KeyPlace to = cache_place<Config::pages>(x, x.cache_k_strides, sequence, place, head);
      element(at(x.k, x.k_strides, head), d, scale_at(x.k_scales, sequence, head, place),
              static_cast<KV *>(x.cache_k)[k_element<Config::pages, bytes>(to, x.pages.size, d)]);
    }
    for (int64_t i = threadIdx.x; i < x.heads_kv * x.head_v; i += AttentionLoopsShape::threads) {
      const int64_t head = i / x.head_v, d = i % x.head_v;
      const KeyPlace to = cache_place<Config::pages>(x, x.cache_v_strides, sequence, place, head);
      store(at(x.v, x.v_strides, head)[d], scale_at(x.v_scales, sequence, head, place),
            static_cast<KV *>(x.cache_v)[v_element<Config::pages, bytes>(to, x.head_v, d)]);
    }
    if (!x.q) return;
    turn_q();
  }

  // All threads of the block.  q may be rotated in its place: a head is read whole before it is written.
  TW_GPU void turn_q() const {
    constexpr int each = (Config::head_qk + AttentionLoopsShape::threads - 1) / AttentionLoopsShape::threads;
    for (int64_t head = 0; head < x.heads_q; ++head) {
      const T *from = at(x.q, x.q_strides, head);
      T made[each];
      for (int e = 0; e < each; ++e) {
        const int64_t d = threadIdx.x + int64_t(e) * AttentionLoopsShape::threads;
        if (d < x.head_qk) element(from, d, 1.0f, made[e]);
      }
      __syncthreads();
      T *to = static_cast<T *>(x.q_out) + sequence * x.q_out_strides.batch + row * x.q_out_strides.row +
              head * x.q_out_strides.head;
      for (int e = 0; e < each; ++e) {
        const int64_t d = threadIdx.x + int64_t(e) * AttentionLoopsShape::threads;
        if (d < x.head_qk) to[d] = made[e];
      }
    }
  }
};

template <class Config>
TW_GPU void attention_loops(const typename attention_args_of<Config::family>::type &x, long long units, float *shared) {
  if constexpr (Config::family == AttentionFamily::combine) {
    for (long long unit = blockIdx.x; unit < units; unit += gridDim.x) attention_combine_row<Config>(x, unit);
  } else if constexpr (Config::family == AttentionFamily::append) {
    for (long long unit = blockIdx.x; unit < units; unit += gridDim.x) AttentionAppend<Config>(x, unit).run();
  } else {
    float *weights = shared + Config::head_qk;
    for (long long unit = blockIdx.x; unit < units; unit += gridDim.x) {
      AttentionLoops<Config> loops(x, unit);
      if (loops.row < loops.s.rows) loops.run(shared, weights);
    }
  }
}

#endif
}  // namespace tw
