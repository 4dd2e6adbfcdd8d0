// Scores become weights of one byte in the fp8 pipeline of attention, a part of a tile's keys at a time.
//
// While wgmma runs it takes registers' ports from everybody else: comparing takes twice as long then, exponentials a
// third longer.  So three scores are compared at once wherever that is right.
#pragma once
#include <tilewright/cuda/attention/scores.h>

namespace tw {

// What a part of a tile is to functions of scores: a tile of as many keys.
template <class S, int Keys> struct Fp8Part : S {
  static constexpr int BN = Keys;
};

// From which number exponentials of a thread's rows are taken, and what the rows had before must be multiplied by.
struct Bases {
  float base[2], factor[2];
  bool low = true;  // a row of the warp has no score of 0 or more yet
};

// The largest of a row's scores and of `top`, which is 0 or more: as whole numbers such floats have the same order, those
// below 0 are below them, and what is no number is above all.
template <class P> TW_GPU float top_from_zero(const float (&s)[P::BN / 2], int r, float top) {
  int tops[4] = {__float_as_int(top), __float_as_int(top), __float_as_int(top), __float_as_int(top)};
#pragma unroll
  for (int i = 0; i < P::BN / 8; ++i) {
    const float *two = s + i * 4 + r * 2;
    tops[i % 4] = max(max(tops[i % 4], __float_as_int(two[0])), __float_as_int(two[1]));
  }
  return __int_as_float(max(max(max(tops[0], tops[1]), tops[2]), tops[3]));
}
template <class P> TW_GPU float top_of_any(const float (&s)[P::BN / 2], int r, float top) {
  float tops[4] = {top, s[r * 2 + 1], s[4 + r * 2], s[4 + r * 2 + 1]};
#pragma unroll
  for (int i = 0; i < P::BN / 4; ++i) tops[i % 4] = fmaxf(tops[i % 4], s[i / 2 * 4 + r * 2 + i % 2]);
  return fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
}
template <class P> TW_GPU void raise_tops(float (&tops)[2], const float (&s)[P::BN / 2], bool low) {
  if (low) {
#pragma unroll
    for (int r = 0; r < 2; ++r) tops[r] = top_of_any<P>(s, r, tops[r]);
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r) tops[r] = top_from_zero<P>(s, r, tops[r]);
  }
}

// Weights are 2^Larger times as large as they are.
template <int Larger> TW_GPU void settle_bases(float (&tops)[2], float fold, Softmax &softmax, Bases &bases) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = fmaxf(tops[r], lane_xor(tops[r], 1));
    top = fmaxf(top, lane_xor(top, 2));
    const bool raised = (top - softmax.top[r]) * fold > near_below;
    if (!raised) top = softmax.top[r];
    const float base = top == no_score() ? 0.0f : top * fold;
    bases.factor[r] = raised ? exp2_fast(softmax.top[r] * fold - base) : 1.0f;
    bases.base[r] = base - float(Larger);
    softmax.top[r] = top;
    softmax.sum[r] *= bases.factor[r];
  }
  bases.low = any_lane(fminf(softmax.top[0], softmax.top[1]) < 0);
}

template <class P>
TW_GPU void take_exponentials(float (&s)[P::BN / 2], float fold, Softmax &softmax, const Bases &bases) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float accum[4] = {softmax.sum[r], 0, 0, 0};
#pragma unroll
    for (int i = 0; i < P::BN / 4; ++i) {
      float &one = s[i / 2 * 4 + r * 2 + i % 2];
      one = exp2_fast(one * fold - bases.base[r]);
      accum[i % 4] += one;
    }
    softmax.sum[r] = (accum[0] + accum[1]) + (accum[2] + accum[3]);
  }
}

}  // namespace tw
