// The gradients of what is added to scores: their sizes, where they are requested.
#pragma once
#include <tilewright/attention_backward_rules.h>
#include <tilewright/gpu/device.h>

namespace tw {

// The gradients of a bias and of slopes, which may lie anywhere; a size of 0 where there is none.
struct BackwardAddedArgs {
  float *dbias, *dalibi;
  int64_t bias_sizes[4], bias_strides[4], alibi_sizes[2], alibi_strides[2];

  TW_BOTH int64_t entries() const {
    return bias_sizes[0] * bias_sizes[1] * bias_sizes[2] * bias_sizes[3] + alibi_sizes[0] * alibi_sizes[1];
  }
};

// What a bias and slopes have of each dimension, where their gradients are requested.  One that repeats has an element
// also where there are no rows or keys to repeat along: its gradient is 0.
template <class Config> BackwardAddedArgs added_of(const tw_attention_backward_args &x) {
  BackwardAddedArgs a{};
  a.dbias = static_cast<float *>(x.dbias), a.dalibi = static_cast<float *>(x.dalibi);
  const int64_t counts[4] = {x.batch, x.heads_q, x.rows, x.keys};
  for (int i = 0; Config::dbias && i < 4; ++i)
    a.bias_strides[i] = x.dbias_strides[i], a.bias_sizes[i] = x.dbias_strides[i] ? counts[i] : 1;
  if (Config::dalibi) {
    a.alibi_sizes[0] = x.dalibi_batch ? x.batch : 1, a.alibi_sizes[1] = x.heads_q;
    a.alibi_strides[0] = x.dalibi_batch, a.alibi_strides[1] = x.dalibi_head;
  }
  return a;
}

}  // namespace tw
