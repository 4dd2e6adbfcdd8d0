// One entry of the matrix of scores: what becomes of it, and what its gradient is.  A vendor's exp2_fast and
// reciprocal_fast come before this header.
#pragma once
#include <tilewright/attention_backward_rules.h>
#include <tilewright/gpu/types.h>

namespace tw {

constexpr int backward_unbounded = 1 << 30;  // a window without an end

// What kernels read of a call, less what they lay out themselves.
struct BackwardCall {
  tw_attention_backward_args x;
  float scale, fold;    // of scores; and log2(e), with the scale in it where nothing comes between them
  float cap, over_cap;  // of scores, 0 where there is none; and 1 / cap
  int group;            // query heads of one head of keys
  int left, right;      // of the window
  int dbias_adds;       // entries of a bias that repeats fall together
};
template <class Config> constexpr bool backward_scored = Config::softcap || Config::bias != AttentionBias::none;

template <class Config> BackwardCall backward_call(const tw_attention_backward_args &x) {
  constexpr double log2_e = 1.4426950408889634;
  const auto bound = [](int64_t window) {
    return window < 0 || window >= backward_unbounded ? backward_unbounded : int(window);
  };
  BackwardCall t{};
  t.x = x;
  t.scale = float(x.scale), t.fold = float(backward_scored<Config> ? log2_e : x.scale * log2_e);
  t.cap = float(x.softcap), t.over_cap = x.softcap > 0 ? float(1 / x.softcap) : 0.0f;
  t.group = int(x.heads_q / x.heads_kv);
  t.left = bound(x.window_left), t.right = bound(x.window_right);
  if (t.left == backward_unbounded) t.x.sink_keys = 0;
  const int64_t counts[4] = {x.batch, x.heads_q, x.rows, x.keys};
  for (int i = 0; i < 4; ++i) t.dbias_adds |= counts[i] > 1 && x.dbias_strides[i] == 0;
  return t;
}

}  // namespace tw

#ifdef TW_ON_GPU

namespace tw {

// The last bits matter to fp32 alone.
template <class T> TW_GPU float backward_exp2(float x) {
  if constexpr (sizeof(T) == 4) return exp2f(x);
  else return exp2_fast(x);
}
template <class T> TW_GPU float backward_tanh(float x) {
  if constexpr (sizeof(T) == 4) return tanhf(x);
  else return 1.0f - 2.0f * reciprocal_fast(exp2_fast(x * 2.88539008f) + 1.0f);
}

// A head of a sequence.
struct BackwardHead {
  int sequence, head;  // of queries
  int first_row, rows, first_key, keys, shift;
};

// The weight as it multiplies values, the gradient of the score, that of what was added to it, and how far row and key
// are apart for ALiBi.
struct BackwardEntry {
  float weight, gradient, added, distance;
};

template <class Config> struct BackwardEntries {
  const BackwardCall &x;
  const BackwardHead &h;
  const Dropout &dropout;
  float slope = 0, alibi_from = 0;

  TW_GPU BackwardEntries(const BackwardCall &args, const BackwardHead &head, const Dropout &drops)
      : x(args), h(head), dropout(drops) {
    if constexpr (Config::bias == AttentionBias::alibi) {
      slope = static_cast<const float *>(x.x.alibi)[h.sequence * x.x.alibi_batch + h.head * x.x.alibi_head];
      const bool ends = x.x.bottom_right || (x.left == backward_unbounded && x.right == backward_unbounded);
      alibi_from = float(ends ? h.keys - h.rows : 0);
    }
  }
  TW_GPU bool seen(int row, int key) const {
    bool there = row < h.rows && key < h.keys;
    if constexpr (Config::mask != AttentionMask::none) {
      if (x.right < backward_unbounded) there = there && key <= row + h.shift + x.right;
      if (x.left < backward_unbounded)
        there = there &&
                (key >= row + h.shift - x.left || (Config::mask == AttentionMask::generic && key < int(x.x.sink_keys)));
    }
    if constexpr (Config::masked)
      there = there && static_cast<const uint8_t *>(x.x.mask)[place(x.x.mask_strides, row, key)] != 0;
    return there;
  }
  // `keeps`: whether dropout keeps it.
  TW_GPU BackwardEntry at(float score, float gradient, float lse, float delta, int row, int key, bool keeps) const {
    if (!seen(row, key)) return {0, 0, 0, 0};
    float slant = 1, distance = 0;
    if constexpr (backward_scored<Config>) {
      score *= x.scale;
      if constexpr (Config::softcap) {
        const float transposed = backward_tanh<typename Config::T>(score * x.over_cap);
        score = x.cap * transposed, slant = 1.0f - transposed * transposed;
      }
      if constexpr (Config::bias == AttentionBias::tensor)
        score += to_float(static_cast<const typename Config::Aux *>(x.x.bias)[place(x.x.bias_strides, row, key)]);
      if constexpr (Config::bias == AttentionBias::alibi) {
        distance = fabsf(float(row) + alibi_from - float(key));
        score -= slope * distance;
      }
    }
    const float p = backward_exp2<typename Config::T>(score * x.fold - lse);
    const float kept = Config::dropout ? (keeps ? dropout.keep : 0.0f) : 1.0f;
    const float added = p * (gradient * kept - delta);
    return {p * kept, added * slant, added, distance};
  }
  TW_GPU void store_bias(int row, int key, float added) const {
    if (row >= h.rows || key >= h.keys) return;
    float *to = static_cast<float *>(x.x.dbias) + place(x.x.dbias_strides, row, key);
    if (x.dbias_adds) atomicAdd(to, added);
    else *to = added;
  }

 private:
  TW_GPU int64_t place(const int64_t (&strides)[4], int row, int key) const {
    return h.sequence * strides[0] + h.head * strides[1] + row * strides[2] + key * strides[3];
  }
};

}  // namespace tw
#endif
