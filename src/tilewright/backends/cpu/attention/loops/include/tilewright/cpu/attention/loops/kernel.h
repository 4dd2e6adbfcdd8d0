// The floor: plain loops with a running softmax, any size, stride, element type and feature.  Slow, short, and easy to
// believe.  A task is a few rows of one head, so that a key is read once for all of them.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/fp8.h>

#include <tilewright/cpu/primitives/dot.h>
#include <tilewright/cpu/primitives/floats.h>
#include <tilewright/cpu/primitives/logarithm.h>
#include <tilewright/cpu/primitives/math.h>
#include <tilewright/cpu/primitives/team.h>

namespace tw {

// Config: as attention_rules.h says.
template <class Config> struct AttentionLoops {
  using Q = typename Config::Q;
  using KV = typename Config::KV;
  using O = typename choose<Config::family == AttentionFamily::split, float, typename Config::O>::type;
  using Keys = Floats<Config::head_qk>;
  using Values = Floats<Config::head_v>;
  static constexpr int rows_at_once = 8, keys_at_once = 64, bytes = sizeof(KV);
  static constexpr int query_lanes = rows_at_once < lanes ? lanes : rows_at_once;
  static constexpr float nothing = -__builtin_inff();
  // Scores of fp32 are added up as the gradients' kernels do (dot.h); with and without lse, so that results are the same.
  static constexpr bool in_order = same<Q, float>::value && same<KV, float>::value;

  static int64_t workspace(const tw_attention_args &, int64_t) { return 0; }

  static int launch(const tw_attention_args &x, void *, void *stream) {
    const int64_t blocks = (x.rows + rows_at_once - 1) / rows_at_once, tasks = x.batch * x.heads_q * blocks * x.splits;
    const int64_t team = team_size(stream), workers = team < tasks ? team : tasks;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t task = worker; task < tasks; task += workers) {
        AttentionLoops loops(x);
        int64_t rest = task;
        loops.part = rest % x.splits, rest /= x.splits;
        const int64_t block = rest % blocks, head = rest / blocks % x.heads_q;
        loops.run(rest / blocks / x.heads_q, head, block * rows_at_once);
      }
    });
    return TW_OK;
  }

 private:
  // One row on its way: the running maximum, sum and values of its softmax.
  struct Row {
    int64_t index;
    Span seen;
    Keys q;
    float top, sum;
    Values o, part;  // of all keys before, and of these: rounded once an iteration at their size, not once a key
    float score[keys_at_once];
  };

  const tw_attention_args &x;
  AttentionSequence s;
  int64_t part, head, head_kv, count;
  Dropout dropout{};
  Row rows[rows_at_once];
  float queries[in_order ? Keys::size : 1][query_lanes];  // by element of a head

  explicit AttentionLoops(const tw_attention_args &args) : x(args), s{}, part(0), head(0), head_kv(0), count(0) {
    if constexpr (Config::dropout) dropout = dropout_of(x);
  }

  void run(int64_t sequence, int64_t of_head, int64_t first) {
    s = sequence_of(x, sequence), head = of_head, head_kv = of_head / (x.heads_q / x.heads_kv);
    count = least(rows_at_once, s.rows - first);
    if (count <= 0) return;
    const int64_t share = most(1, (s.keys + x.splits - 1) / x.splits);
    const Span mine{least(s.keys, part * share), least(s.keys, (part + 1) * share)};
    for (int64_t r = 0; r < count; ++r) begin(rows[r], first + r);
    if constexpr (in_order)
      for (int d = 0; d < Keys::size; ++d)
        for (int64_t r = 0; r < query_lanes; ++r) queries[d][r] = r < count ? rows[r].q.at[d] : 0.0f;
    for (int64_t key = mine.begin; key < mine.end; key += keys_at_once)
      step({key, least(mine.end, key + keys_at_once)});
    for (int64_t r = 0; r < count; ++r) finish(rows[r]);
  }

  void begin(Row &row, int64_t index) {
    row.index = index, row.seen = window_of(x, s, index);
    const Q *q = static_cast<const Q *>(x.q) + s.index * x.q_strides.batch + (s.first_row + index) * x.q_strides.row +
                 head * x.q_strides.head;
    const float factor = Config::scales == AttentionScales::none ? 1.0f : scale_at(x.q_scales, s.index, head, index);
    for (int d = 0; d < Keys::size; ++d) row.q.at[d] = d < x.head_qk ? to_float(q[d]) * factor : 0.0f;
    for (int d = 0; d < Values::size; ++d) row.o.at[d] = 0.0f;
    row.top = nothing, row.sum = 0.0f;
    if constexpr (Config::sink) {
      if (part == 0) row.top = static_cast<const float *>(x.sink)[head], row.sum = row.top > nothing ? 1.0f : 0.0f;
      if (row.top != row.top) row.sum = row.top;
    }
  }

  bool sees(const Row &row, int64_t key) const {
    if (key >= row.seen.end || (key < row.seen.begin && key >= x.sink_keys)) return false;
    if constexpr (!Config::masked) return true;
    else
      return static_cast<const uint8_t *>(x.mask)[s.index * x.mask_strides[0] + head * x.mask_strides[1] +
                                                  row.index * x.mask_strides[2] + key * x.mask_strides[3]] != 0;
  }

  float score(const Row &row, int64_t key, float dot) const {
    float value = rounded_here(float(x.scale) * dot);
    if constexpr (Config::softcap)
      if (x.softcap > 0) value = rounded_here(float(x.softcap) * vtanh(splat(value * float(1 / x.softcap)))[0]);
    if constexpr (Config::bias == AttentionBias::tensor)
      value += to_float(
          static_cast<const typename Config::Aux *>(x.bias)[s.index * x.bias_strides[0] + head * x.bias_strides[1] +
                                                            row.index * x.bias_strides[2] + key * x.bias_strides[3]]);
    if constexpr (Config::bias == AttentionBias::alibi) {
      const float slope = static_cast<const float *>(x.alibi)[s.index * x.alibi_batch + head * x.alibi_head];
      const int64_t apart = row.index + alibi_shift(x, s) - key;
      value -= slope * float(apart < 0 ? -apart : apart);
    }
    return value;
  }

  // Scores of some keys for all rows, then their values.
  void step(Span keys) {
    bool any = false;
    for (int64_t r = 0; r < count; ++r) any = any || touches(rows[r], keys);
    if (!any) return;
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      Keys k;
      load(x.k, key_place<Config::pages>(x, x.k_strides, s, key, head_kv), x.head_qk, k.at, fixed<Keys::size>{},
           [&](const KeyPlace &at, int64_t d) { return k_element<Config::pages, bytes>(at, x.pages.size, d); });
      const float factor = Config::scales == AttentionScales::none ? 1.0f : scale_at(x.k_scales, s.index, head_kv, key);
      float accum[query_lanes];
      if constexpr (in_order)
        for (int r = 0; r < query_lanes; r += lanes) store_f(accum + r, in_runs(r, k));
      for (int64_t r = 0; r < count; ++r) {
        if constexpr (!in_order) accum[r] = Keys::dot(rows[r].q, k);
        rows[r].score[key - keys.begin] = sees(rows[r], key) ? score(rows[r], key, accum[r] * factor) : nothing;
      }
    }
    for (int64_t r = 0; r < count; ++r) weigh(rows[r], keys);
    for (int64_t key = keys.begin; key < keys.end; ++key) add_values(keys, key);
    for (int64_t r = 0; r < count; ++r)
      for (int d = 0; d < Values::size; ++d) rows[r].o.at[d] += rows[r].part.at[d];
  }
  vf in_runs(int r, const Keys &k) const {
    vf sum{};
    for (int d = 0; d < Keys::size; d += score_run) {
      vf run{};
      for (int e = d; e < d + score_run; ++e) run += load_f(queries[e] + r) * k.at[e];
      sum += run;
    }
    return sum;
  }
  bool touches(const Row &row, Span keys) const {
    return keys.begin < row.seen.end && (keys.end > row.seen.begin || keys.begin < x.sink_keys);
  }

  // Scores become weights under the new maximum; what was summed under the old one is scaled.
  void weigh(Row &row, Span keys) {
    const int64_t size = keys.size();
    float top = row.top;
    for (int d = 0; d < Values::size; ++d) row.part.at[d] = 0.0f;
    for (int64_t c = 0; c < size; ++c) top = row.score[c] > top || row.score[c] != row.score[c] ? row.score[c] : top;
    if (top == nothing) {
      for (int64_t c = 0; c < size; ++c) row.score[c] = 0.0f;
      return;
    }
    const float old = row.top == nothing ? 0.0f : vexp(splat(row.top - top))[0];
    float sum = 0.0f;
    for (int64_t c = 0; c < size; ++c) {
      const float p = row.score[c] == nothing ? 0.0f : vexp(splat(row.score[c] - top))[0];
      sum += p;
      row.score[c] = p;
      if constexpr (Config::dropout)
        row.score[c] =
            dropout.keeps(uint32_t(s.index * x.heads_q + head), uint32_t(row.index), uint32_t(keys.begin + c))
                ? p * dropout.keep
                : 0.0f;
    }
    row.sum = row.sum * old + sum, row.top = top;
    for (int d = 0; d < Values::size; ++d) row.o.at[d] *= old;
  }

  void add_values(Span keys, int64_t key) {
    bool any = false;
    for (int64_t r = 0; r < count; ++r) any = any || rows[r].score[key - keys.begin] != 0.0f;
    if (!any) return;
    Values v;
    load(x.v, key_place<Config::pages>(x, x.v_strides, s, key, head_kv), x.head_v, v.at, fixed<Values::size>{},
         [&](const KeyPlace &at, int64_t d) { return v_element<Config::pages, bytes>(at, x.head_v, d); });
    const float factor = Config::scales == AttentionScales::none ? 1.0f : scale_at(x.v_scales, s.index, head_kv, key);
    for (int64_t r = 0; r < count; ++r) {
      const float p = rows[r].score[key - keys.begin] * factor;
      if (p == 0.0f) continue;
      for (int d = 0; d < Values::size; ++d) rows[r].part.at[d] += p * v.at[d];
    }
  }

  template <int Size, class At>
  static void load(const void *from, const KeyPlace &place, int64_t there, float *to, fixed<Size>, const At &at) {
    for (int d = 0; d < Size; ++d) to[d] = d < there ? to_float(static_cast<const KV *>(from)[at(place, d)]) : 0.0f;
  }

  void finish(const Row &row) const {
    O *o = static_cast<O *>(x.o) + part * x.o_split + s.index * x.o_strides.batch +
           (s.first_row + row.index) * x.o_strides.row + head * x.o_strides.head;
    const bool empty = row.sum == 0.0f;
    const float factor = empty ? 0.0f : 1.0f / row.sum;
    for (int64_t d = 0; d < x.head_v; ++d) from_float(empty ? 0.0f : row.o.at[d] * factor, o + d);
    if constexpr (Config::lse || Config::family == AttentionFamily::split)
      static_cast<float *>(
          x.lse)[part * x.lse_split + s.index * x.lse_batch + head * x.lse_head + s.first_row + row.index] =
          empty ? nothing : float(double(row.top) + logarithm(row.sum));
  }
};

// Parts into one: a row of one head at a time.
template <class Config> struct AttentionCombineLoops {
  using O = typename Config::O;
  using Args = tw_attention_combine_args;
  static constexpr float nothing = -__builtin_inff();

  static int64_t workspace(const Args &, int64_t) { return 0; }
  static int launch(const Args &x, void *, void *stream) {
    const int64_t tasks = x.batch * x.heads_q, team = team_size(stream), workers = team < tasks ? team : tasks;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t task = worker; task < tasks; task += workers) {
        AttentionSequence s{task / x.heads_q, 0, 0, 0, 0};
        rows_of(x, s);
        for (int64_t row = 0; row < s.rows; ++row) one(x, s, task % x.heads_q, row);
      }
    });
    return TW_OK;
  }

 private:
  static void one(const Args &x, const AttentionSequence &s, int64_t head, int64_t row) {
    const float *lse = static_cast<const float *>(x.part_lse) + s.index * x.part_lse_batch + head * x.part_lse_head +
                       s.first_row + row;
    const float *parts = static_cast<const float *>(x.parts) + s.index * x.part_strides.batch +
                         (s.first_row + row) * x.part_strides.row + head * x.part_strides.head;
    O *o = static_cast<O *>(x.o) + s.index * x.o_strides.batch + (s.first_row + row) * x.o_strides.row +
           head * x.o_strides.head;
    float top = nothing, sum = 0.0f, values[Config::head_v] = {};
    for (int64_t p = 0; p < x.splits; ++p) {
      const float one = lse[p * x.part_lse_split];
      top = one > top || one != one ? one : top;
    }
    for (int64_t p = 0; p < x.splits && top != nothing; ++p) {
      const float one = lse[p * x.part_lse_split];
      if (one == nothing) continue;
      const float weight = vexp(splat(one - top))[0];
      sum += weight;
      for (int64_t d = 0; d < x.head_v; ++d) values[d] += weight * parts[p * x.part_split + d];
    }
    const bool empty = sum == 0.0f;
    for (int64_t d = 0; d < x.head_v; ++d) from_float(empty ? 0.0f : values[d] / sum, o + d);
    if constexpr (Config::lse)
      static_cast<float *>(x.lse)[s.index * x.lse_batch + head * x.lse_head + s.first_row + row] =
          empty ? nothing : float(double(top) + logarithm(sum));
  }
};

TW_INLINE void from_float(float x, fp8_e4m3 *out) { out->bits = to_e4m3<false>(x); }

// New rows into the cache, and q rotated in its place.
template <class Config> struct AttentionAppendLoops {
  using Q = typename Config::Q;
  using KV = typename Config::KV;
  using Aux = typename Config::Aux;
  using Args = tw_attention_append_args;
  static constexpr int bytes = sizeof(KV);

  static int64_t workspace(const Args &, int64_t) { return 0; }
  static int launch(const Args &x, void *, void *stream) {
    const int64_t tasks = x.batch * x.rows, team = team_size(stream), workers = team < tasks ? team : tasks;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t task = worker; task < tasks; task += workers) {
        const int64_t sequence = task / x.rows, row = task % x.rows;
        if (row < (x.lengths_new ? table_entry(x.lengths_new, sequence) : x.rows)) one(x, sequence, row);
      }
    });
    return TW_OK;
  }

 private:
  static const void *from(const void *base, const tw_attention_strides &s, int64_t sequence, int64_t row,
                          int64_t head) {
    return static_cast<const Q *>(base) + sequence * s.batch + row * s.row + head * s.head;
  }
  static void one(const Args &x, int64_t sequence, int64_t row) {
    const int64_t place = table_entry(x.lengths, sequence) + row;
    if (!cache_has<Config::pages>(x, sequence, place)) return;
    float rotated[Config::head_qk];
    for (int64_t head = 0; head < x.heads_kv; ++head) {
      const Q *k = static_cast<const Q *>(from(x.k, x.k_strides, sequence, row, head));
      turn(x, k, place, rotated);
      KeyPlace at = cache_place<Config::pages>(x, x.cache_k_strides, sequence, place, head);
      float scale = scale_at(x.k_scales, sequence, head, place);
      for (int64_t d = 0; d < x.head_qk; ++d) {
        KV *to = static_cast<KV *>(x.cache_k) + k_element<Config::pages, bytes>(at, x.pages.size, d);
        if (d < x.rotary) from_float(rotated[d] / scale, to);
        else store(k[d], scale, to);
      }
      const Q *v = static_cast<const Q *>(from(x.v, x.v_strides, sequence, row, head));
      at = cache_place<Config::pages>(x, x.cache_v_strides, sequence, place, head);
      scale = scale_at(x.v_scales, sequence, head, place);
      for (int64_t d = 0; d < x.head_v; ++d)
        store(v[d], scale, static_cast<KV *>(x.cache_v) + v_element<Config::pages, bytes>(at, x.head_v, d));
    }
    if (!x.q) return;
    for (int64_t head = 0; head < x.heads_q; ++head) {
      const Q *q = static_cast<const Q *>(from(x.q, x.q_strides, sequence, row, head));
      Q *to = static_cast<Q *>(x.q_out) + sequence * x.q_out_strides.batch + row * x.q_out_strides.row +
              head * x.q_out_strides.head;
      turn(x, q, place, rotated);
      for (int64_t d = 0; d < x.head_qk; ++d) {
        if (d < x.rotary) from_float(rotated[d], to + d);
        else to[d] = q[d];
      }
    }
  }

  // An element that is not rotated: a copy, or rounded where the cache is narrower.
  static void store(Q value, float scale, KV *to) {
    if constexpr (same<Q, KV>::value) *to = value;
    else from_float(to_float(value) / scale, to);
  }

  static void turn(const Args &x, const Q *from, int64_t place, float *to) {
    if constexpr (Config::rotary != AttentionRotary::none) {
      const Aux *cos = static_cast<const Aux *>(x.cos) + place * x.table_stride;
      const Aux *sin = static_cast<const Aux *>(x.sin) + place * x.table_stride;
      for (int64_t i = 0; i < x.rotary / 2; ++i) {
        const int64_t a = Config::rotary == AttentionRotary::half ? i : 2 * i;
        const int64_t b = Config::rotary == AttentionRotary::half ? i + x.rotary / 2 : 2 * i + 1;
        const float p = to_float(from[a]), q = to_float(from[b]), c = to_float(cos[i]), s = to_float(sin[i]);
        to[a] = p * c - q * s, to[b] = q * c + p * s;
      }
    }
  }
};

}  // namespace tw
