// Rows that came out as no number although their weights are numbers.
//
// A key that a row does not see does not count, whatever its value; but the fast kernels multiply by weights of 0, and 0
// times infinity is no number.  Such rows are summed again, one key after the other, without those of no weight.  Where
// a kernel also fills queries up with zeros beside which elements of a key stand, weights come out as no number too,
// though the score may be minus infinity: those are found again first.
#pragma once
#include <tilewright/cpu/attention/softmax.h>
#include <tilewright/cpu/attention/view.h>

namespace tw {

template <class Config> struct Careful {
  using Q = typename Config::Q;
  using K = typename Config::KV;

  // The maximum and the sum of the row's softmax.
  static __attribute__((noinline, cold)) void weights(const tw_attention_args &x, const Sequence &s, int64_t kv_head,
                                                      int64_t head, int64_t i, float &top, float &sum) {
    Rows<K> k(x, s, x.k, x.k_strides, kv_head);
    top = minus_infinity, sum = 0.0f;
    if constexpr (Config::sink) top = static_cast<const float *>(x.sink)[head], sum = 1.0f;
    for (int64_t j = 0; j < s.to(x, i); ++j) {
      if (j < s.from(x, i) && j >= x.sink_keys) continue;
      float one = score(x, s, head, i, j, k.at(j)), now = one > top ? one : top;
      vf less = subtracted(splat(now));
      sum = sum * vexp_weight<true>(splat(top) - less)[0] + vexp_weight<true>(splat(one) - less)[0];
      top = now;
    }
  }

  // The row's results over its sum; `top` and `sum` are those of its softmax.
  static __attribute__((noinline, cold)) void row(const tw_attention_args &x, const Sequence &s, int64_t kv_head,
                                                  int64_t head, int64_t i, float top, float sum,
                                                  typename Config::O *to) {
    Rows<K> k(x, s, x.k, x.k_strides, kv_head), v(x, s, x.v, x.v_strides, kv_head);
    float out[Config::head_v];
    for (int64_t d = 0; d < x.head_v; ++d) out[d] = 0.0f;
    for (int64_t j = 0; j < s.to(x, i); ++j) {
      if (j < s.from(x, i) && j >= x.sink_keys) continue;
      float weight = sum == 0.0f ? 0.0f : vexp_weight<true>(splat(score(x, s, head, i, j, k.at(j)) - top))[0] / sum;
      if (weight == 0.0f) continue;
      const K *value = v.at(j);
      for (int64_t d = 0; d < x.head_v; ++d) out[d] += weight * to_float(value[d]);
    }
    for (int64_t d = 0; d < x.head_v; ++d) from_float(out[d], to + d);
  }

 private:
  static __attribute__((noinline, cold)) float score(const tw_attention_args &x, const Sequence &s, int64_t head,
                                                     int64_t i, int64_t j, const K *key) {
    if constexpr (Config::masked)
      if (!static_cast<const uint8_t *>(x.mask)[at_strides(x.mask_strides, s, head, i, j)]) return minus_infinity;
    const Q *q = q_row<Q>(x, s, head, i);
    float found = 0.0f;
    for (int64_t d = 0; d < x.head_qk; ++d) found += to_float(q[d]) * to_float(key[d]);
    found *= float(x.scale);
    if constexpr (Config::softcap)
      if (x.softcap > 0) found = float(x.softcap) * vtanh(splat(found / float(x.softcap)))[0];
    if constexpr (Config::bias == AttentionBias::tensor)
      found += to_float(static_cast<const typename Config::Aux *>(x.bias)[at_strides(x.bias_strides, s, head, i, j)]);
    if constexpr (Config::bias == AttentionBias::alibi)
      found -= slope_of(x, s, head) * float(i + s.beside < j ? j - i - s.beside : i + s.beside - j);
    return found;
  }
};

}  // namespace tw
