// Attention's gradients by plain loops: any size, stride, element type and feature.  What is added up is added by one
// team, or by the teams of one block in their order: the same bits in every run.  A vendor's exp2_fast and
// reciprocal_fast come before this header.
#pragma once
#include <tilewright/gpu/attention_backward_added.h>
#include <tilewright/gpu/attention_backward_entries.h>

namespace tw {

// 32 lanes are a team, which has one key, row or entry of a result.
struct BackwardLoops {
  static constexpr int threads = 256, teams = threads / 32;
};
template <class Config> constexpr bool accum_of_dq =
    Config::accumulate == AttentionAccumulate::dq || Config::accumulate == AttentionAccumulate::all;
template <class Config> constexpr bool accum_of_dkv =
    Config::accumulate == AttentionAccumulate::dkv || Config::accumulate == AttentionAccumulate::all;

struct BackwardLoopsArgs : BackwardCall {
  int64_t keys, rows;  // a team for each, over heads and sequences
  int64_t bias_sizes[4];
  int64_t slopes[2];

  TW_BOTH int64_t entries() const { return bias_sizes[0] * bias_sizes[1] * bias_sizes[2] * bias_sizes[3]; }
  static unsigned blocks(int64_t teams) { return unsigned((teams + BackwardLoops::teams - 1) / BackwardLoops::teams); }
};

template <class Config> BackwardLoopsArgs backward_loops_args(const tw_attention_backward_args &x) {
  // Packed lines that no sequence has are the first one's, of a sequence without any too.
  const auto at_least = [](int64_t lines, const void *starts) { return starts && lines < 1 ? 1 : lines; };
  BackwardLoopsArgs t{backward_call<Config>(x), 0, 0, {}, {}};
  t.keys = at_least(x.keys, x.starts_k) * x.batch * (accum_of_dkv<Config> ? x.dkv_heads : x.heads_kv);
  t.rows = at_least(x.rows, x.starts_q) * x.batch * x.heads_q;
  const BackwardAddedArgs added = added_of<Config>(x);
  for (int i = 0; i < 4; ++i) t.bias_sizes[i] = added.bias_sizes[i];
  t.slopes[0] = added.alibi_sizes[0], t.slopes[1] = added.alibi_sizes[1];
  return t;
}

}  // namespace tw

#ifdef TW_ON_GPU

namespace tw {

template <class Config> struct BackwardLooper {
  using T = typename Config::T;
  static constexpr int D = (Config::head_qk + 31) / 32, DV = (Config::head_v + 31) / 32;  // elements of a lane
  const BackwardLoopsArgs &x;
  const tw_attention_backward_args &a;
  const Dropout dropout;
  const int lane = int(threadIdx.x) % 32;

  TW_GPU explicit BackwardLooper(const BackwardLoopsArgs &args)
      : x(args), a(args.x), dropout(Config::dropout ? dropout_of(args.x) : Dropout{}) {}

  TW_GPU BackwardHead head_of(int64_t sequence, int64_t head) const {
    const AttentionSequence s = sequence_in_rows(a, sequence);
    return {int(sequence),
            int(head),
            int(s.first_row),
            int(s.rows),
            int(s.first_key),
            int(s.keys),
            a.bottom_right ? int(s.keys - s.rows) : 0};
  }
  // An entry and its gradients; all lanes have them.
  TW_GPU BackwardEntry entry(const BackwardHead &h, int row, int key, const float (&q)[D], const float (&k)[D],
                             const float (&o)[DV], const float (&v)[DV]) const {
    float score = 0, gradient = 0;
#pragma unroll
    for (int i = 0; i < D; ++i) score += q[i] * k[i];
#pragma unroll
    for (int i = 0; i < DV; ++i) gradient += o[i] * v[i];
#pragma unroll
    for (int bits = 1; bits < 32; bits *= 2) score += lane_xor(score, bits), gradient += lane_xor(gradient, bits);
    const int64_t prepared = prepared_at(a, h.sequence, h.head) + row;
    bool keeps = true;
    if constexpr (Config::dropout)
      keeps = dropout.keeps(uint32_t(h.sequence * int(a.heads_q) + h.head), uint32_t(row), uint32_t(key));
    const BackwardEntries<Config> entries(x, h, dropout);
    return entries.at(score, gradient, static_cast<const float *>(a.lse_log2)[prepared],
                      static_cast<const float *>(a.delta)[prepared], row, key, keeps);
  }
  TW_GPU bool seen(const BackwardHead &h, int row, int key) const {
    return BackwardEntries<Config>(x, h, dropout).seen(row, key);
  }
  template <int Count> TW_GPU void read(float (&to)[Count], const void *base, const tw_attention_strides &strides,
                                        int sequence, int line, int head, int columns) const {
    const T *from =
        static_cast<const T *>(base) + sequence * strides.batch + int64_t(line) * strides.row + head * strides.head;
    const int first = compared_anew(lane);
#pragma unroll
    for (int i = 0; i < Count; ++i) to[i] = first + i * 32 < columns ? to_float(from[first + i * 32]) : 0.0f;
  }
  // AMD: which lanes have an element is a mask in scalar registers, and of heads of 256 they held more than there are.
  static TW_GPU int compared_anew(int number) {
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(number));
#endif
    return number;
  }
  TW_GPU void read_row(float (&q)[D], float (&o)[DV], const BackwardHead &h, int row) const {
    read(q, a.q, a.q_strides, a.starts_q ? 0 : h.sequence, h.first_row + row, h.head, int(a.head_qk));
    read(o, a.dout, a.dout_strides, a.starts_q ? 0 : h.sequence, h.first_row + row, h.head, int(a.head_v));
  }
  TW_GPU void read_key(float (&k)[D], float (&v)[DV], const BackwardHead &h, int key) const {
    const int head = h.head / x.group;
    read(k, a.k, a.k_strides, a.starts_k ? 0 : h.sequence, h.first_key + key, head, int(a.head_qk));
    read(v, a.v, a.v_strides, a.starts_k ? 0 : h.sequence, h.first_key + key, head, int(a.head_v));
  }
  // A line of results, or of fp32 accumulators.
  template <bool Accumulators, int Count> TW_GPU void store_tile(const float (&accum)[Count], float factor, void *base,
                                                                 const tw_attention_strides &strides,
                                                                 const void *starts, int64_t sequence, int64_t first,
                                                                 int64_t line, int64_t head, int columns) const {
    const int64_t at = Accumulators ? prepared_first(starts, sequence) + line : first + line;
    const int64_t place = (starts ? 0 : sequence * strides.batch) + at * strides.row + head * strides.head;
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const int column = lane + i * 32;
      if (column >= columns) continue;
      if constexpr (Accumulators) static_cast<float *>(base)[place + column] = accum[i];
      else round_to(accum[i] * factor, static_cast<T *>(base)[place + column]);
    }
  }
  template <bool Accumulators, int Count> TW_GPU void clear(void *base, const tw_attention_strides &strides,
                                                            const void *starts, const Unused &unused, int64_t head,
                                                            int columns) const {
    if (Accumulators || !starts) return;  // nobody reads what lies between accumulators
    const float none[Count] = {};
    for (int part = 0; part < 2; ++part) {
      const Span span = part ? unused.behind : unused.before;
      for (int64_t line = span.begin; line < span.end; ++line)
        store_tile<false>(none, 0.0f, base, strides, starts, 0, 0, line, head, columns);
    }
  }

  // dk and dv of a key, of a head of keys or, where heads are added up later, of a split of its query heads.
  TW_GPU void key(int64_t number) const {
    constexpr bool accum = accum_of_dkv<Config>;
    const int64_t room = larger_of(1, a.keys), key = number % room, heads = accum ? a.dkv_heads : a.heads_kv;
    const int64_t head = number / room % heads, sequence = number / room / heads;
    const int64_t parts = heads / a.heads_kv, part = head % parts, begin = part * x.group / parts;
    const int count = int((part + 1) * x.group / parts - begin);
    BackwardHead h = head_of(sequence, head / parts * x.group + begin);
    float dk[D] = {}, dv[DV] = {};
    if (key < h.keys) {
      float k[D], v[DV], q[D], o[DV];
      read_key(k, v, h, int(key));
      for (int i = 0; i < count; ++i, ++h.head)
        for (int row = 0; row < h.rows; ++row) {
          if (!seen(h, row, int(key))) continue;
          read_row(q, o, h, row);
          const BackwardEntry one = entry(h, row, int(key), q, k, o, v);
#pragma unroll
          for (int j = 0; j < D; ++j) dk[j] += one.gradient * q[j];
#pragma unroll
          for (int j = 0; j < DV; ++j) dv[j] += one.weight * o[j];
        }
    }
    if (key < (a.starts_k ? h.keys : a.keys)) {
      store_tile<accum>(dk, x.scale, a.dk, a.dk_strides, a.starts_k, sequence, h.first_key, key, head, int(a.head_qk));
      store_tile<accum>(dv, 1.0f, a.dv, a.dv_strides, a.starts_k, sequence, h.first_key, key, head, int(a.head_v));
    }
    if (key) return;
    const Unused unused = unused_rows(a.starts_k, sequence, a.batch, h.keys, a.keys, a.total_keys);
    clear<accum, D>(a.dk, a.dk_strides, a.starts_k, unused, head, int(a.head_qk));
    clear<accum, DV>(a.dv, a.dv_strides, a.starts_k, unused, head, int(a.head_v));
  }
  TW_GPU void row(int64_t number) const {
    constexpr bool accum = accum_of_dq<Config>;
    const int64_t room = larger_of(1, a.rows), row = number % room, head = number / room % a.heads_q;
    const int64_t sequence = number / room / a.heads_q;
    const BackwardHead h = head_of(sequence, head);
    float dq[D] = {};
    if (row < h.rows) {
      float k[D], v[DV], q[D], o[DV];
      read_row(q, o, h, int(row));
      for (int key = 0; key < h.keys; ++key) {
        if (!seen(h, int(row), key)) continue;
        read_key(k, v, h, key);
        const BackwardEntry one = entry(h, int(row), key, q, k, o, v);
#pragma unroll
        for (int j = 0; j < D; ++j) dq[j] += one.gradient * k[j];
      }
    }
    if (row < (a.starts_q ? h.rows : a.rows))
      store_tile<accum>(dq, x.scale, a.dq, a.dq_strides, a.starts_q, sequence, h.first_row, row, head, int(a.head_qk));
    if (row == 0)
      clear<accum, D>(a.dq, a.dq_strides, a.starts_q,
                      unused_rows(a.starts_q, sequence, a.batch, h.rows, a.rows, a.total_rows), head, int(a.head_qk));
  }
  // What the entries add to a bias and to slopes, of those in a box of sequences, heads, rows and keys; every `step`-th
  // row from `first` on.
  struct Added {
    float bias, slope;
  };
  TW_GPU Added added(const Span &sequences, const Span &heads, const Span &rows, const Span &keys, int step) const {
    Added sum{0, 0};
    for (int64_t b = sequences.begin; b < sequences.end; ++b)
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        const BackwardHead h = head_of(b, head);
        float k[D], v[DV], q[D], o[DV];
        for (int row = int(rows.begin); row < rows.end && row < h.rows; row += step) {
          read_row(q, o, h, row);
          for (int key = int(keys.begin); key < keys.end && key < h.keys; ++key) {
            if (!seen(h, row, key)) continue;
            read_key(k, v, h, key);
            const BackwardEntry one = entry(h, row, key, q, k, o, v);
            sum.bias += one.added, sum.slope -= one.added * one.distance;
          }
        }
      }
    return sum;
  }
  TW_GPU static Span along(int64_t at, int64_t size, int64_t count, int64_t stride) {
    return stride || size == count ? Span{at, at + 1} : Span{0, count};
  }
  TW_GPU void bias(int64_t number) const {
    const int64_t (&n)[4] = x.bias_sizes, (&s)[4] = a.dbias_strides;
    const int64_t key = number % n[3], row = number / n[3] % n[2], z = number / n[3] / n[2];
    const int64_t head = z % n[1], b = z / n[1];
    const Added sum = added(along(b, n[0], a.batch, s[0]), along(head, n[1], a.heads_q, s[1]),
                            along(row, n[2], a.rows, s[2]), along(key, n[3], a.keys, s[3]), 1);
    if (lane == 0) static_cast<float *>(a.dbias)[b * s[0] + head * s[1] + row * s[2] + key * s[3]] = sum.bias;
  }
  // A block has a slope: its teams take rows in turn.  `sums` is shared memory, a float a team.
  TW_GPU void slope(int64_t number, float *accum) const {
    const int64_t head = number % x.slopes[1], b = number / x.slopes[1];
    const int team = int(threadIdx.x) / 32;
    const Added sum = added(along(b, x.slopes[0], a.batch, a.dalibi_batch), {head, head + 1}, {team, a.rows},
                            {0, a.keys}, BackwardLoops::teams);
    if (lane == 0) accum[team] = sum.slope;
    __syncthreads();
    if (threadIdx.x) return;
    float all = 0;
    for (int i = 0; i < BackwardLoops::teams; ++i) all += accum[i];
    static_cast<float *>(a.dalibi)[b * a.dalibi_batch + head * a.dalibi_head] = all;
  }
  TW_GPU static int64_t larger_of(int64_t one, int64_t other) { return one > other ? one : other; }
};

TW_GPU int64_t backward_team() { return int64_t(blockIdx.x) * BackwardLoops::teams + threadIdx.x / 32; }

}  // namespace tw
#endif
