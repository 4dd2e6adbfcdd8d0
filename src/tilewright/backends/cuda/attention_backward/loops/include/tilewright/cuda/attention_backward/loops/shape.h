// The numbers of the loops of attention's gradients: 32 lanes are a team, which has one key, row or entry of a result.
#pragma once
#include <tilewright/cuda/attention_backward/entries.h>

namespace tw {

struct BackwardLoops {
  static constexpr int threads = 256, teams = threads / 32;
};
template <class Config> constexpr bool sums_of_dq =
    Config::accumulate == AttentionAccumulate::dq || Config::accumulate == AttentionAccumulate::all;
template <class Config> constexpr bool sums_of_dkv =
    Config::accumulate == AttentionAccumulate::dkv || Config::accumulate == AttentionAccumulate::all;

struct BackwardLoopsArgs : BackwardCall {
  int64_t keys, rows;  // a team for each, over heads and sequences
  int64_t bias_sizes[4];
  int64_t slopes[2];
};

}  // namespace tw
