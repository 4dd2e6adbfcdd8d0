// The floor: plain loops, any size, stride, element type and feature.  Slow, short, and easy to believe: each result is
// added up by itself, in the order of rows and keys, and the softmax is computed again for each.
#pragma once
#include <tilewright/cpu/attention_backward/view.h>
#include <tilewright/cpu/primitives/exponential.h>
#include <tilewright/cpu/primitives/floats.h>

namespace tw {

template <class Config> struct AttentionDotLoops {
  using T = typename Config::T;
  static int64_t workspace(const tw_attention_backward_dot_args &, int64_t) { return 0; }

  static int launch(const tw_attention_backward_dot_args &x, void *, void *stream) {
    parallel(stream, x.batch * x.heads_q, [&](int64_t task) { rows(x, task / x.heads_q, task % x.heads_q); });
    if constexpr (Config::dsink) parallel(stream, x.heads_q, [&](int64_t head) { sink(x, head); });
    return TW_OK;
  }

  static void rows(const tw_attention_backward_dot_args &x, int64_t sequence, int64_t head) {
    AttentionSequence s{sequence, 0, 0, 0, 0};
    rows_of(x, s);
    float *delta = static_cast<float *>(x.delta) + prepared_at(x, sequence, head);
    float *log = static_cast<float *>(x.lse_log2) + prepared_at(x, sequence, head);
    const float *lse = static_cast<const float *>(x.lse) + sequence * x.lse_batch + head * x.lse_head + s.first_row;
    for (int64_t i = 0; i < s.rows; ++i) {
      const T *out = row_at<T>(x.out, x.out_strides, sequence, s.first_row + i, head);
      const T *dout = row_at<T>(x.dout, x.dout_strides, sequence, s.first_row + i, head);
      float sum = 0.0f;
      for (int64_t d = 0; d < x.head_v; ++d) sum += to_float(out[d]) * to_float(dout[d]);
      if constexpr (Config::dlse)
        sum -= static_cast<const float *>(x.dlse)[sequence * x.dlse_batch + head * x.dlse_head + s.first_row + i];
      const bool sees = lse[i] != minus_infinity;  // NaN in dlse of a row without keys goes nowhere
      delta[i] = sees ? sum : 0.0f;
      log[i] = sees ? lse[i] * log2_e : -minus_infinity;
    }
    for (int64_t i = s.rows; i < prepared_end(s.rows); ++i) delta[i] = 0.0f, log[i] = -minus_infinity;
  }

  static void sink(const tw_attention_backward_dot_args &x, int64_t head) {
    const float logit = static_cast<const float *>(x.sink)[head];
    float sum = 0.0f;
    for (int64_t b = 0; b < x.batch; ++b) {
      AttentionSequence s{b, 0, 0, 0, 0};
      rows_of(x, s);
      const float *delta = static_cast<const float *>(x.delta) + prepared_at(x, b, head);
      const float *lse = lse_rows(x, s, head);
      for (int64_t i = 0; i < s.rows; ++i)
        if (lse[i] != minus_infinity) sum -= vexp(splat(logit - lse[i]))[0] * delta[i];
    }
    static_cast<float *>(x.dsink)[head] = sum;
  }
};

template <class Config> struct AttentionGradLoops {
  using T = typename Config::T;
  using Keys = Floats<Config::head_qk>;
  using Values = Floats<Config::head_v>;
  using Args = tw_attention_backward_args;
  static int64_t workspace(const Args &, int64_t) { return 0; }

  static int launch(const Args &x, void *, void *stream) {
    zero_unused<T>(x);
    const int64_t heads = x.batch * x.heads_q;
    parallel(stream, heads * x.rows, [&](int64_t task) {
      AttentionGradLoops one(x, task / x.rows / x.heads_q, task / x.rows % x.heads_q);
      if (task % x.rows < one.s.rows) one.query(task % x.rows);
    });
    parallel(stream, x.batch * x.heads_kv * x.keys, [&](int64_t task) {
      const int64_t group = x.heads_q / x.heads_kv;
      AttentionGradLoops one(x, task / x.keys / x.heads_kv, task / x.keys % x.heads_kv * group);
      if (task % x.keys < one.s.keys) one.key(task % x.keys);
    });
    if constexpr (Config::dbias) bias_gradient(x, stream);
    if constexpr (Config::dalibi) slope_gradient(x, stream);
    return TW_OK;
  }

 private:
  // What a row and a key are to each other: the weight as it is multiplied by v, and the gradients of the score, after
  // and before the cap.
  struct Pair {
    float weight, ds, g;
  };

  const Args &x;
  AttentionSequence s;
  int64_t head;
  Dropout dropout{};

  AttentionGradLoops(const Args &args, int64_t sequence, int64_t of_head)
      : x(args), s(sequence_in_rows(args, sequence)), head(of_head) {
    if constexpr (Config::dropout) dropout = dropout_of(x);
  }
  int64_t head_kv() const { return head / (x.heads_q / x.heads_kv); }

  template <class Row> static void load(Row &to, const T *from, int64_t size) {
    for (int d = 0; d < Row::size; ++d) to.at[d] = d < size ? to_float(from[d]) : 0.0f;
  }
  void load_row(int64_t row, Keys &q, Values &dout) const {
    load(q, row_at<T>(x.q, x.q_strides, s.index, s.first_row + row, head), x.head_qk);
    load(dout, row_at<T>(x.dout, x.dout_strides, s.index, s.first_row + row, head), x.head_v);
  }
  void load_key(int64_t key, Keys &k, Values &v) const {
    load(k, row_at<T>(x.k, x.k_strides, s.index, s.first_key + key, head_kv()), x.head_qk);
    load(v, row_at<T>(x.v, x.v_strides, s.index, s.first_key + key, head_kv()), x.head_v);
  }

  bool sees(int64_t row, int64_t key) const {
    const Span seen = window_of(x, s, row);
    if (key >= seen.end || (key < seen.begin && key >= x.sink_keys)) return false;
    if constexpr (Config::masked)
      return static_cast<const uint8_t *>(x.mask)[entry_at(x.mask_strides, x, s.index, head, row, key)] != 0;
    else return true;
  }
  float distance(int64_t row, int64_t key) const {
    const int64_t apart = row + alibi_shift(x, s) - key;
    return float(apart < 0 ? -apart : apart);
  }

  Pair pair(int64_t row, int64_t key, const Keys &q, const Keys &k, const Values &dout, const Values &v) const {
    const float log = subtracted_lse(lse_rows(x, s, head)[row]);
    const float delta = static_cast<const float *>(x.delta)[prepared_at(x, s.index, head) + row];
    if (log == -minus_infinity || !sees(row, key)) return {0.0f, 0.0f, 0.0f};
    const float product = same<T, float>::value ? Keys::score(q, k) : Keys::dot(q, k);
    float score = rounded_here(float(x.scale) * product), flat = 1.0f;
    if constexpr (Config::softcap)
      if (x.softcap > 0) {
        const TanhAndSlope found = tanh_and_slope(splat(score * float(1 / x.softcap)));
        score = rounded_here(float(x.softcap) * found.tanh[0]), flat = found.slope[0];
      }
    if constexpr (Config::bias == AttentionBias::tensor)
      score += to_float(
          static_cast<const typename Config::Aux *>(x.bias)[entry_at(x.bias_strides, x, s.index, head, row, key)]);
    if constexpr (Config::bias == AttentionBias::alibi)
      score -= static_cast<const float *>(x.alibi)[s.index * x.alibi_batch + head * x.alibi_head] * distance(row, key);
    // lse given by another rounding may be a little below a score: the weight is then a little over 1.
    const float p = vexp(splat(score - log))[0];
    float keep = 1.0f;
    if constexpr (Config::dropout)
      keep = dropout.keeps(uint32_t(s.index * x.heads_q + head), uint32_t(row), uint32_t(key)) ? dropout.keep : 0.0f;
    const float ds = p * (keep * Values::dot(dout, v) - delta);
    return {keep * p, ds, ds * flat};
  }

  void query(int64_t row) const {
    Keys q, k, dq{};
    Values dout, v;
    load_row(row, q, dout);
    for (int64_t key = 0; key < s.keys; ++key) {
      if (!sees(row, key)) continue;
      load_key(key, k, v);
      const float g = pair(row, key, q, k, dout, v).g;
      for (int d = 0; d < Keys::size; ++d) dq.at[d] += g * k.at[d];
    }
    T *to = row_at<T>(x.dq, x.dq_strides, s.index, s.first_row + row, head);
    for (int64_t d = 0; d < x.head_qk; ++d) from_float(float(x.scale) * dq.at[d], to + d);
  }

  void key(int64_t key) {
    Keys q, k, dk{};
    Values dout, v, dv{};
    load_key(key, k, v);
    const int64_t first = head, group = x.heads_q / x.heads_kv;
    for (head = first; head < first + group; ++head)
      for (int64_t row = 0; row < s.rows; ++row) {
        if (!sees(row, key)) continue;
        load_row(row, q, dout);
        const Pair found = pair(row, key, q, k, dout, v);
        for (int d = 0; d < Keys::size; ++d) dk.at[d] += found.g * q.at[d];
        for (int d = 0; d < Values::size; ++d) dv.at[d] += found.weight * dout.at[d];
      }
    head = first;
    T *to = row_at<T>(x.dk, x.dk_strides, s.index, s.first_key + key, head_kv());
    for (int64_t d = 0; d < x.head_qk; ++d) from_float(float(x.scale) * dk.at[d], to + d);
    to = row_at<T>(x.dv, x.dv_strides, s.index, s.first_key + key, head_kv());
    for (int64_t d = 0; d < x.head_v; ++d) from_float(dv.at[d], to + d);
  }

  // The sum of ds over some sequences, heads, rows and keys, each with a weight.
  template <class Weight>
  static float sum(const Args &x, Span sequences, Span heads, Span rows, Span keys, const Weight &weight) {
    float total = 0.0f;
    Keys q, k;
    Values dout, v;
    for (int64_t b = sequences.begin; b < sequences.end; ++b)
      for (int64_t h = heads.begin; h < heads.end; ++h) {
        const AttentionGradLoops one(x, b, h);
        for (int64_t row = rows.begin; row < least(rows.end, one.s.rows); ++row) {
          one.load_row(row, q, dout);
          for (int64_t key = keys.begin; key < least(keys.end, one.s.keys); ++key) {
            if (!one.sees(row, key)) continue;
            one.load_key(key, k, v);
            total += one.pair(row, key, q, k, dout, v).ds * weight(one, row, key);
          }
        }
      }
    return total;
  }

  static void bias_gradient(const Args &x, void *stream) {
    const int64_t all[4] = {x.batch, x.heads_q, x.rows, x.keys};
    int64_t sizes[4];
    for (int i = 0; i < 4; ++i) sizes[i] = x.dbias_strides[i] ? all[i] : least(1, all[i]);
    for (int i = 0; i < 4; ++i)
      if (!x.dbias_strides[i]) sizes[i] = 1;  // one element even where nothing is added to it
    parallel(stream, sizes[0] * sizes[1] * sizes[2], [&](int64_t task) {
      const int64_t at[3] = {task / sizes[2] / sizes[1], task / sizes[2] % sizes[1], task % sizes[2]};
      Span spans[4];
      for (int i = 0; i < 3; ++i) spans[i] = x.dbias_strides[i] ? Span{at[i], at[i] + 1} : Span{0, all[i]};
      for (int64_t key = 0; key < sizes[3]; ++key) {
        spans[3] = x.dbias_strides[3] ? Span{key, key + 1} : Span{0, all[3]};
        static_cast<float *>(x.dbias)[entry_at(x.dbias_strides, x, at[0], at[1], at[2], key)] =
            sum(x, spans[0], spans[1], spans[2], spans[3],
                [](const AttentionGradLoops &, int64_t, int64_t) { return 1.0f; });
      }
    });
  }

  static void slope_gradient(const Args &x, void *stream) {
    const int64_t sequences = x.dalibi_batch ? x.batch : 1;
    parallel(stream, sequences * x.heads_q, [&](int64_t task) {
      const int64_t b = task / x.heads_q, h = task % x.heads_q;
      const Span some = x.dalibi_batch ? Span{b, b + 1} : Span{0, x.batch};
      static_cast<float *>(x.dalibi)[b * x.dalibi_batch + h * x.dalibi_head] =
          -sum(x, some, {h, h + 1}, {0, x.rows}, {0, x.keys},
               [](const AttentionGradLoops &one, int64_t row, int64_t key) { return one.distance(row, key); });
    });
  }
};

template <class Config> struct AttentionConvertLoops {
  using T = typename Config::T;
  using Args = tw_attention_backward_convert_args;
  static int64_t workspace(const Args &, int64_t) { return 0; }

  static int launch(const Args &x, void *, void *stream) {
    one(x, x.dq, x.starts_q, x.lengths_q, x.rows, x.total_rows, x.heads_q, x.head_qk, float(x.scale), stream);
    one(x, x.dk, x.starts_k, x.lengths_k, x.keys, x.total_keys, x.heads_kv, x.head_qk, float(x.scale), stream);
    one(x, x.dv, x.starts_k, x.lengths_k, x.keys, x.total_keys, x.heads_kv, x.head_v, 1.0f, stream);
    return TW_OK;
  }

  static void one(const Args &x, const tw_attention_backward_sums &accum, const void *starts, const void *lengths,
                  int64_t room, int64_t total, int64_t heads, int64_t size, float factor, void *stream) {
    if (!accum.to) return;
    if (!x.batch && starts) zero_rows<T>(accum.to, accum.to_strides, 0, {0, total}, heads, size);
    parallel(stream, x.batch * heads, [&](int64_t task) {
      const int64_t b = task / heads, head = task % heads, first = starts ? table_entry(starts, b) : 0;
      const int64_t count = lengths ? table_entry(lengths, b) : starts ? table_entry(starts, b + 1) - first : room;
      const int64_t prepared = prepared_first(starts, b);
      for (int64_t i = 0; i < count; ++i) {
        T *to = row_at<T>(accum.to, accum.to_strides, b, first + i, head);
        for (int64_t d = 0; d < size; ++d) {
          float sum = 0.0f;
          for (int64_t part = 0; part < accum.parts; ++part)
            sum += row_at<float>(accum.source, accum.source_strides, b, prepared + i, head * accum.parts + part)[d];
          from_float(factor * sum, to + d);
        }
      }
      const Unused unused = unused_rows(starts, b, x.batch, count, room, total);
      if (head) return;
      zero_rows<T>(accum.to, accum.to_strides, b, unused.before, heads, size);
      zero_rows<T>(accum.to, accum.to_strides, b, unused.behind, heads, size);
    });
  }
};

}  // namespace tw
