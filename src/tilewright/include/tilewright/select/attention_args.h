// A kernel's own check of an attention, by the limits that selection uses too.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/select/attention.h>
#include <tilewright/select/check.h>

namespace tw {
namespace selection {

// What limits may read of a problem, from the arguments of a call and the Config (attention_rules.h) of a kernel.  Of a
// bias no more is known than whether it repeats along keys; masks and element types are known to costs only.
inline bool whole_address(const void *at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }

template <class Config> AttentionProblem attention_of_config() {
  AttentionProblem p{};
  p.family = int64_t(Config::family);
  p.size_q = sizeof(typename Config::Q), p.size_kv = sizeof(typename Config::KV);
  p.size_out = sizeof(typename Config::O), p.size_aux = sizeof(typename Config::Aux);
  p.bias = int64_t(Config::bias), p.masked = Config::masked, p.softcap = Config::softcap;
  p.pages = int64_t(Config::pages), p.page_lookup = int64_t(Config::lookup);
  p.window_left = p.window_right = -1;
  p.bias_batch = p.bias_heads = p.bias_rows = p.bias_keys = 1;
  p.mask_batch = p.mask_heads = p.mask_rows = p.mask_keys = 1;
  return p;
}

inline void set_pages(AttentionProblem &p, const tw_attention_pages &pages) {
  if (p.pages == kNoPages) return;
  p.page_size = pages.size, p.page_count = pages.count;
}

// Where an operand begins is no matter where it has no elements.
template <class Config> AttentionProblem attention_of(const tw_attention_args &x) {
  AttentionProblem p = attention_of_config<Config>();
  p.batch = x.batch, p.heads_q = x.heads_q, p.heads_kv = x.heads_kv, p.seqlen_q = x.rows, p.seqlen_k = x.keys;
  p.head_dim = x.head_qk, p.head_dim_v = x.head_v, p.num_splits = x.splits;
  p.bottom_right = x.bottom_right, p.window_left = x.window_left, p.window_right = x.window_right;
  p.sink_tokens = x.sink_keys;
  if (p.bias == kBiasTensor && x.bias_strides[3] != 0) p.bias_keys = x.keys;
  p.varlen = x.starts_q != nullptr, p.total_q = x.total_rows, p.total_k = x.total_keys;
  p.seqlens_q = x.lengths_q != nullptr, p.seqlens_k = x.lengths_k != nullptr;
  set_pages(p, x.pages);
  p.q_batch = x.q_strides.batch, p.q_row = x.q_strides.row, p.q_head = x.q_strides.head;
  p.k_batch = x.k_strides.batch, p.k_row = x.k_strides.row, p.k_head = x.k_strides.head;
  p.v_batch = x.v_strides.batch, p.v_row = x.v_strides.row, p.v_head = x.v_strides.head;
  p.o_batch = x.o_strides.batch, p.o_row = x.o_strides.row, p.o_head = x.o_strides.head;
  const bool rows = !p.varlen || x.total_rows > 0;
  const bool keys = p.pages != kNoPages ? x.pages.count > 0 : x.starts_k ? x.total_keys > 0 : x.keys > 0;
  p.aligned =
      (!rows || whole_address(x.q)) && (!keys || (whole_address(x.k) && whole_address(x.v))) && whole_address(x.o);
  return p;
}

// Splits come from a stage of this op: the kernel checks their strides itself.
template <class Config> AttentionProblem attention_of(const tw_attention_combine_args &x) {
  AttentionProblem p = attention_of_config<Config>();
  p.batch = x.batch, p.heads_q = p.heads_kv = x.heads_q, p.seqlen_q = x.rows, p.num_splits = x.splits;
  p.head_dim = p.head_dim_v = x.head_v;
  p.varlen = x.starts_q != nullptr, p.total_q = x.total_rows, p.seqlens_q = x.lengths_q != nullptr;
  p.o_batch = x.o_strides.batch, p.o_row = x.o_strides.row, p.o_head = x.o_strides.head;
  p.aligned = whole_address(x.o);
  return p;
}

// k and v are the cache, o is q after rotary embedding.
template <class Config> AttentionProblem attention_of(const tw_attention_append_args &x) {
  AttentionProblem p = attention_of_config<Config>();
  p.batch = x.batch, p.heads_q = x.heads_q, p.heads_kv = x.heads_kv, p.seqlen_q = x.rows, p.seqlen_k = x.keys;
  p.head_dim = x.head_qk, p.head_dim_v = x.head_v;
  p.rotary_dim = x.rotary, p.rotary_q = x.q != nullptr, p.seqlens_q = x.lengths_new != nullptr;
  set_pages(p, x.pages);
  p.q_batch = x.q_strides.batch, p.q_row = x.q_strides.row, p.q_head = x.q_strides.head;
  p.k_batch = x.cache_k_strides.batch, p.k_row = x.cache_k_strides.row, p.k_head = x.cache_k_strides.head;
  p.v_batch = x.cache_v_strides.batch, p.v_row = x.cache_v_strides.row, p.v_head = x.cache_v_strides.head;
  p.o_batch = x.q_out_strides.batch, p.o_row = x.q_out_strides.row, p.o_head = x.q_out_strides.head;
  const bool rotated = !x.q || (whole_address(x.q) && whole_address(x.q_out));
  p.aligned = rotated && whole_address(x.cache_k) && whole_address(x.cache_v);
  return p;
}

// 0, or the code of what the limits of a kernel say of arguments that are sound.
template <class Config, class Limits, class Args> int check_limits(const Args &x, char *why, size_t bytes) {
  const AttentionProblem p = attention_of<Config>(x);
  return check<Limits>(Attention(p), why, bytes);
}

}  // namespace selection
}  // namespace tw
