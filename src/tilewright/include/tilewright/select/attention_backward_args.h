// A kernel's own check of the gradients of an attention, by the limits that selection uses too.
#pragma once
#include <tilewright/attention_backward_rules.h>
#include <tilewright/select/attention_backward.h>
#include <tilewright/select/check.h>

namespace tw {
namespace selection {

// What limits may read of a problem, from the arguments of a call and the Config (attention_backward_rules.h) of a
// kernel.  Of a bias no more is known than along which dimensions it repeats; of masks and element types nothing.
inline bool whole_backward_address(const void *at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }

template <class Config> AttentionBackwardProblem attention_backward_of_config() {
  AttentionBackwardProblem p{};
  p.family = int64_t(Config::family), p.size = sizeof(typename Config::T), p.size_aux = sizeof(typename Config::Aux);
  p.bias = int64_t(Config::bias), p.masked = Config::masked, p.softcap = Config::softcap, p.dropout = Config::dropout;
  p.dlse = Config::dlse, p.dsink = Config::dsink, p.dbias = Config::dbias, p.dalibi = Config::dalibi;
  p.accumulate = int64_t(Config::accumulate);
  p.window_left = p.window_right = -1;
  p.bias_batch = p.bias_heads = p.bias_rows = p.bias_keys = 1;
  p.mask_batch = p.mask_heads = p.mask_rows = p.mask_keys = 1;
  p.dkv_splits = 1;
  return p;
}

#define TW_BACKWARD_STRIDES(p, name, s) \
  (p).name##_batch = (s).batch, (p).name##_row = (s).row, (p).name##_head = (s).head

template <class Config> AttentionBackwardProblem attention_backward_of(const tw_attention_backward_dot_args &x) {
  AttentionBackwardProblem p = attention_backward_of_config<Config>();
  p.batch = x.batch, p.heads_q = p.heads_kv = x.heads_q, p.seqlen_q = x.rows, p.head_dim = p.head_dim_v = x.head_v;
  p.varlen = x.starts_q != nullptr, p.total_q = x.total_rows, p.seqlens_q = x.lengths_q != nullptr;
  TW_BACKWARD_STRIDES(p, o, x.out_strides);
  TW_BACKWARD_STRIDES(p, do, x.dout_strides);
  const bool rows = p.varlen ? x.total_rows > 0 : x.rows > 0 && x.batch > 0;
  p.aligned = !rows || (whole_backward_address(x.out) && whole_backward_address(x.dout));
  return p;
}

// Where an operand begins is no matter where it has no elements.
template <class Config> AttentionBackwardProblem attention_backward_of(const tw_attention_backward_args &x) {
  AttentionBackwardProblem p = attention_backward_of_config<Config>();
  p.batch = x.batch, p.heads_q = x.heads_q, p.heads_kv = x.heads_kv, p.seqlen_q = x.rows, p.seqlen_k = x.keys;
  p.head_dim = x.head_qk, p.head_dim_v = x.head_v, p.deterministic = x.deterministic;
  p.bottom_right = x.bottom_right, p.window_left = x.window_left, p.window_right = x.window_right;
  p.sink_tokens = x.sink_keys, p.dkv_splits = x.dkv_heads / x.heads_kv;
  if (p.bias == kBackwardBiasTensor) {
    if (x.bias_strides[0]) p.bias_batch = x.batch;
    if (x.bias_strides[1]) p.bias_heads = x.heads_q;
    if (x.bias_strides[2]) p.bias_rows = x.rows;
    if (x.bias_strides[3]) p.bias_keys = x.keys;
  }
  p.varlen = x.starts_q != nullptr, p.total_q = x.total_rows, p.total_k = x.total_keys;
  p.seqlens_q = x.lengths_q != nullptr, p.seqlens_k = x.lengths_k != nullptr;
  TW_BACKWARD_STRIDES(p, q, x.q_strides);
  TW_BACKWARD_STRIDES(p, k, x.k_strides);
  TW_BACKWARD_STRIDES(p, v, x.v_strides);
  TW_BACKWARD_STRIDES(p, do, x.dout_strides);
  TW_BACKWARD_STRIDES(p, dq, x.dq_strides);
  TW_BACKWARD_STRIDES(p, dk, x.dk_strides);
  TW_BACKWARD_STRIDES(p, dv, x.dv_strides);
  const bool rows = p.varlen ? x.total_rows > 0 : x.rows > 0, keys = p.varlen ? x.total_keys > 0 : x.keys > 0;
  p.aligned =
      (!rows || (whole_backward_address(x.q) && whole_backward_address(x.dout) && whole_backward_address(x.dq))) &&
      (!keys || (whole_backward_address(x.k) && whole_backward_address(x.v) && whole_backward_address(x.dk) &&
                 whole_backward_address(x.dv)));
  return p;
}

template <class Config> AttentionBackwardProblem attention_backward_of(const tw_attention_backward_convert_args &x) {
  AttentionBackwardProblem p = attention_backward_of_config<Config>();
  p.batch = x.batch, p.heads_q = x.heads_q, p.heads_kv = x.heads_kv, p.seqlen_q = x.rows, p.seqlen_k = x.keys;
  p.head_dim = x.head_qk, p.head_dim_v = x.head_v;
  p.varlen = x.starts_q != nullptr, p.total_q = x.total_rows, p.total_k = x.total_keys;
  p.seqlens_q = x.lengths_q != nullptr, p.seqlens_k = x.lengths_k != nullptr;
  TW_BACKWARD_STRIDES(p, dq, x.dq.to_strides);
  TW_BACKWARD_STRIDES(p, dk, x.dk.to_strides);
  TW_BACKWARD_STRIDES(p, dv, x.dv.to_strides);
  p.dkv_splits = x.dk.to ? x.dk.parts : 1;
  p.aligned = whole_backward_address(x.dq.to) && whole_backward_address(x.dk.to) && whole_backward_address(x.dv.to);
  return p;
}

// 0, or the code of what the limits of a kernel say of arguments that are sound.
template <class Config, class Limits, class Args> int check_backward_limits(const Args &x, char *why, size_t bytes) {
  const AttentionBackwardProblem p = attention_backward_of<Config>(x);
  return check<Limits>(AttentionBackward(p), why, bytes);
}

}  // namespace selection
}  // namespace tw
