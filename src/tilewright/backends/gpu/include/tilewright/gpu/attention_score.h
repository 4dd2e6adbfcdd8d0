// What becomes of the products of queries and keys: scale, soft cap, bias, ALiBi, a boolean mask.  Every GPU kernel that
// works a score at a time says it by this.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/gpu/activation.h>

#ifdef TW_ON_GPU
namespace tw {

constexpr float attention_log2e = 1.4426950408889634f;
TW_GPU float minus_infinity() { return __uint_as_float(0xff800000u); }

// One row of one query head.  Scores are computed for keys that the sequence has, and for no others: bias and mask end there.
template <class Config> struct AttentionScore {
  using Aux = typename Config::Aux;
  const uint8_t *mask;
  const Aux *bias;
  int64_t mask_key, bias_key, middle;
  float scale, cap, slope;

  TW_GPU AttentionScore() {}
  TW_GPU AttentionScore(const tw_attention_args &x, const AttentionSequence &s, int64_t head, int64_t row)
      : scale(float(x.scale)), cap(float(x.softcap)) {
    if constexpr (Config::masked) {
      mask = static_cast<const uint8_t *>(x.mask) + s.index * x.mask_strides[0] + head * x.mask_strides[1] +
             row * x.mask_strides[2];
      mask_key = x.mask_strides[3];
    }
    if constexpr (Config::bias == AttentionBias::tensor) {
      bias = static_cast<const Aux *>(x.bias) + s.index * x.bias_strides[0] + head * x.bias_strides[1] +
             row * x.bias_strides[2];
      bias_key = x.bias_strides[3];
    }
    if constexpr (Config::bias == AttentionBias::alibi) {
      middle = row + alibi_shift(x, s);
      slope = static_cast<const float *>(x.alibi)[s.index * x.alibi_batch + head * x.alibi_head];
    }
  }

  // Whether the boolean mask lets the row see the key; windows are tested apart.
  TW_GPU bool shown(int64_t key) const {
    if constexpr (Config::masked) return mask[key * mask_key] != 0;
    else return true;
  }
  // The score of a key, of the product of the row and the key.
  TW_GPU float of(float product, int64_t key) const {
    float value = product * scale;
    if constexpr (Config::softcap) {
      const float capped = cap * tangent(value / cap);
      value = cap > 0 ? capped
                      : value;  // no branch: one for each score kept accumulators and fragments from their registers
    }
    if constexpr (Config::bias == AttentionBias::tensor) value += to_float(bias[key * bias_key]);
    if constexpr (Config::bias == AttentionBias::alibi) {
      const int64_t apart = middle - key;
      value -= slope * float(apart < 0 ? -apart : apart);
    }
    return value;
  }
};

}  // namespace tw
#endif
