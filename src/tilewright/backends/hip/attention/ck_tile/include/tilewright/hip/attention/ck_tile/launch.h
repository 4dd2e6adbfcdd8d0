// What a launch of an attention kernel passes to its blocks: plain numbers and pointers, all that the passes of the compiler
// must agree on beside the names of kernels.  The host fills it (kernel.h), the device reads it (device.h).
#pragma once
#include <tilewright/attention_rules.h>

namespace tw::hip {

template <class Config> constexpr bool windowed = Config::mask == AttentionMask::window;
template <class Config> constexpr bool paged = Config::pages != AttentionPages::none;

// Which of CK Tile's kernels one is.
enum class AttentionRoute { forward, split, combine, paged, append, prefill };

// What a kernel is to CK Tile: in the header of its route, for the device's pass.
template <class Config, AttentionRoute = Config::route> struct AttentionDevice;

// Steps in elements: from row to row, from head to head, from sequence (or page) to the next.
struct Steps {
  int row, head, batch;
};

struct AttentionLaunch {
  const void *q, *k, *v;
  const void *bias;  // an element a score, or a slope a head
  void *o;           // of a split kernel: its splits
  float *lse;
  const float *parts, *parts_lse;  // what combine puts together
  const int *starts_q, *starts_k, *lengths_k;
  const int *pages;        // the page table or, with page_starts, one list of pages
  const int *page_starts;  // where the pages of a sequence begin in the list
  Steps q_steps, k_steps, v_steps, bias_steps, o_steps, lse_steps, parts_steps, parts_lse_steps;
  int o_split, lse_split, parts_split, parts_lse_split;  // from split to split
  int batch, heads, group, rows, keys, head_qk, head_v;
  int splits, page_size, pages_step, page_count;
  int window_left, window_right, top_left;
  float scale;  // of exponents of two
  float softcap, softcap_inverse;
  float drop_threshold;  // the chance to drop in 65536ths
  uint64_t seed, offset;
  const uint64_t *seed_at;                           // both, where they are read as late as the kernel runs
  tw_attention_scales q_scales, k_scales, v_scales;  // of fp8, by tensor or head
  // Append: q, k and v above are written; these are read.
  const void *new_k, *new_v, *cos, *sin;
  Steps new_k_steps, new_v_steps;
  int new_keys, rotary;
};

}  // namespace tw::hip
