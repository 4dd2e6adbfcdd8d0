// dot and convert, a row at a time in vectors.  A thread takes `rows` rows of one head; a sum is added in the order of
// its elements, so that the result is the same on any number of threads.
#pragma once
#include <tilewright/cpu/attention_backward/view.h>
#include <tilewright/cpu/primitives/exponential.h>

namespace tw {

// Config: as attention_backward_rules.h says, and `rows`.
template <class Config> struct AttentionDotRows {
  using T = typename Config::T;
  using Args = tw_attention_backward_dot_args;
  static int64_t workspace(const Args &, int64_t) { return 0; }

  static int launch(const Args &x, void *, void *stream) {
    const int64_t blocks = most(1, (x.rows + Config::rows - 1) / Config::rows);
    parallel(stream, x.batch * x.heads_q * blocks, [&](int64_t task) {
      const int64_t of_head = task / blocks;
      some(x, of_head / x.heads_q, of_head % x.heads_q, task % blocks * Config::rows, task % blocks + 1 == blocks);
    });
    if constexpr (Config::dsink) parallel(stream, x.heads_q, [&](int64_t head) { sink(x, head); });
    return TW_OK;
  }

  static TW_INLINE float product(const T *a, const T *b, int64_t size) {
    vf sum{};
    int64_t d = 0;
    for (; d + lanes <= size; d += lanes) sum += load_as_float(a + d) * load_as_float(b + d);
    if (d < size) sum += load_as_float(a + d, size - d) * load_as_float(b + d, size - d);
    return sum_lanes(sum);
  }

  static void some(const Args &x, int64_t sequence, int64_t head, int64_t first, bool last) {
    AttentionSequence s{sequence, 0, 0, 0, 0};
    rows_of(x, s);
    float *delta = static_cast<float *>(x.delta) + prepared_at(x, sequence, head);
    float *log = static_cast<float *>(x.lse_log2) + prepared_at(x, sequence, head);
    const float *lse = static_cast<const float *>(x.lse) + sequence * x.lse_batch + head * x.lse_head + s.first_row;
    const T *out = row_at<T>(x.out, x.out_strides, sequence, s.first_row, head);
    const T *dout = row_at<T>(x.dout, x.dout_strides, sequence, s.first_row, head);
    for (int64_t i = first; i < least(s.rows, first + Config::rows); ++i) {
      float sum = product(out + i * x.out_strides.row, dout + i * x.dout_strides.row, x.head_v);
      if constexpr (Config::dlse)
        sum -= static_cast<const float *>(x.dlse)[sequence * x.dlse_batch + head * x.dlse_head + s.first_row + i];
      const bool sees = lse[i] != minus_infinity;  // NaN in dlse of a row without keys goes nowhere
      delta[i] = sees ? sum : 0.0f;
      log[i] = sees ? lse[i] * log2_e : -minus_infinity;
    }
    if (!last) return;
    for (int64_t i = s.rows; i < prepared_end(s.rows); ++i) delta[i] = 0.0f, log[i] = -minus_infinity;
  }

  static void sink(const Args &x, int64_t head) {
    const vf logit = splat(static_cast<const float *>(x.sink)[head]);
    vf sum{};
    for (int64_t b = 0; b < x.batch; ++b) {
      AttentionSequence s{b, 0, 0, 0, 0};
      rows_of(x, s);
      const float *delta = static_cast<const float *>(x.delta) + prepared_at(x, b, head);
      const float *lse = lse_rows(x, s, head);
      for (int64_t i = 0; i < s.rows; i += lanes) {  // rows without keys have no weight, as lanes behind the last row
        const vf log = load_as_float(lse + i, s.rows - i), weight = vexp(logit - log), off = load_f(delta + i);
        sum -= select(vi(log == minus_infinity) | vi(off == 0.0f), vf{}, weight * off);
      }
    }
    static_cast<float *>(x.dsink)[head] = sum_lanes(sum);
  }
};

template <class Config> struct AttentionConvertRows {
  using T = typename Config::T;
  using Args = tw_attention_backward_convert_args;
  static int64_t workspace(const Args &, int64_t) { return 0; }

  static int launch(const Args &x, void *, void *stream) {
    one(x, x.dq, x.starts_q, x.lengths_q, {x.rows, x.total_rows, x.heads_q, x.head_qk}, float(x.scale), stream);
    one(x, x.dk, x.starts_k, x.lengths_k, {x.keys, x.total_keys, x.heads_kv, x.head_qk}, float(x.scale), stream);
    one(x, x.dv, x.starts_k, x.lengths_k, {x.keys, x.total_keys, x.heads_kv, x.head_v}, 1.0f, stream);
    return TW_OK;
  }

 private:
  struct Shape {
    int64_t room, total, heads, size;
  };

  static void one(const Args &x, const tw_attention_backward_sums &accum, const void *starts, const void *lengths,
                  const Shape &z, float factor, void *stream) {
    if (!accum.to) return;
    if (!x.batch && starts) zero_rows<T>(accum.to, accum.to_strides, 0, {0, z.total}, z.heads, z.size);
    const int64_t blocks = most(1, (z.room + Config::rows - 1) / Config::rows);
    parallel(stream, x.batch * z.heads * blocks, [&](int64_t task) {
      const int64_t b = task / blocks / z.heads, head = task / blocks % z.heads, block = task % blocks;
      const int64_t first = starts ? table_entry(starts, b) : 0;
      const int64_t count = lengths ? table_entry(lengths, b) : starts ? table_entry(starts, b + 1) - first : z.room;
      const int64_t end = least(count, (block + 1) * Config::rows);
      for (int64_t i = block * Config::rows; i < end; ++i)
        row(accum, row_at<T>(accum.to, accum.to_strides, b, first + i, head),
            row_at<float>(accum.source, accum.source_strides, b, prepared_first(starts, b) + i, head * accum.parts),
            z.size, factor);
      if (head || block) return;
      const Unused unused = unused_rows(starts, b, x.batch, count, z.room, z.total);
      zero_rows<T>(accum.to, accum.to_strides, b, unused.before, z.heads, z.size);
      zero_rows<T>(accum.to, accum.to_strides, b, unused.behind, z.heads, z.size);
    });
  }

  static TW_INLINE void row(const tw_attention_backward_sums &accum, T *to, const float *from, int64_t size,
                            float factor) {
    for (int64_t d = 0; d < size; d += lanes) {
      vf sum{};
      for (int64_t part = 0; part < accum.parts; ++part)
        sum += load_as_float(from + part * accum.source_strides.head + d, size - d);
      store_from_float(to + d, sum * factor, size - d);
    }
  }
};

}  // namespace tw
