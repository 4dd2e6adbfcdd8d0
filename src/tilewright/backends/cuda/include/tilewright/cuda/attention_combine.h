// Parts of attention into one: a team of warps for a row of one head, who share its parts; several teams a block.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/gpu/types.h>

namespace tw {

// Config: what attention_rules.h says, warps, and early: it may come in before the kernel before it is done.
template <class Config> struct AttentionCombine {
  static constexpr int warps = Config::warps, teams = warps < 4 ? 4 / warps : 1, threads = 32 * warps * teams;
  static constexpr int most_splits = 128;
  static constexpr int columns = (Config::head_v + 127) / 128 * 4;  // of a lane, four at a time
  static constexpr int team_floats = most_splits + warps * Config::head_v;
  static constexpr int shared_bytes = teams * team_floats * 4;
};

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/device.h>
#include <tilewright/cuda/fast_math.h>

namespace tw {

template <class Config> struct RowCombiner {
  using S = AttentionCombine<Config>;
  const tw_attention_combine_args &x;
  float *weights, *sums;  // of parts; of each warp's columns
  int warp, lane = int(threadIdx.x) % 32, team;

  TW_GPU explicit RowCombiner(const tw_attention_combine_args &args)
      : x(args), warp(int(threadIdx.x) / 32 % S::warps), team(int(threadIdx.x) / 32 / S::warps) {
    weights = reinterpret_cast<float *>(dynamic_shared()) + team * S::team_floats;
    sums = weights + S::most_splits;
  }
  TW_GPU void meet() const {
    if constexpr (S::warps == 1) __syncwarp();
    else named_barrier(1 + team, 32 * S::warps);
  }

  TW_GPU void row(const AttentionSequence &s, int64_t head, int64_t row) {
    constexpr float log2_e = 1.44269504f;
    const float *lse =
        static_cast<const float *>(x.part_lse) + s.index * x.part_lse_batch + head * x.part_lse_head + row;
    const float nothing = -INFINITY;
    // Every warp finds the largest by itself; the first writes the weights.
    float top = nothing, sum = 0;
    for (int p = lane; p < x.splits; p += 32) top = fmaxf(top, lse[p * x.part_lse_split]);
#pragma unroll
    for (int by = 16; by > 0; by /= 2) top = fmaxf(top, lane_xor(top, by));
    for (int p = lane; p < x.splits; p += 32) {
      const float one = top == nothing ? 0.0f : exp2_fast((lse[p * x.part_lse_split] - top) * log2_e);
      if (warp == 0) weights[p] = one;
      sum += one;
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += lane_xor(sum, by);
    meet();
    add_parts(static_cast<const float *>(x.parts) + s.index * x.part_strides.batch + row * x.part_strides.row +
              head * x.part_strides.head);
    meet();
    typename Config::O *to = static_cast<typename Config::O *>(x.o) + s.index * x.o_strides.batch +
                             row * x.o_strides.row + head * x.o_strides.head;
    for (int d = warp * 32 + lane; d < x.head_v; d += 32 * S::warps) {
      float value = 0;
#pragma unroll
      for (int w = 0; w < S::warps; ++w) value += sums[w * Config::head_v + d];
      round_to(sum == 0 ? 0.0f : value / sum, to[d]);
    }
    if (Config::lse && warp == 0 && lane == 0)
      static_cast<float *>(x.lse)[s.index * x.lse_batch + head * x.lse_head + row] =
          sum == 0 ? nothing : top + logf(sum);
  }

 private:
  TW_GPU void add_parts(const float *parts) {
    float o[S::columns];
#pragma unroll
    for (int j = 0; j < S::columns; ++j) o[j] = 0;
#pragma unroll 4
    for (int p = warp; p < int(x.splits); p += S::warps) {
      const float weight = weights[p];
#pragma unroll
      for (int j = 0; j < S::columns / 4; ++j) {
        const int d = j * 128 + lane * 4;
        if (d >= x.head_v) continue;
        const float4 four = *reinterpret_cast<const float4 *>(parts + p * x.part_split + d);
        // A part that nothing was seen in is zeros, whatever its weight.
        o[j * 4] += weight * four.x, o[j * 4 + 1] += weight * four.y;
        o[j * 4 + 2] += weight * four.z, o[j * 4 + 3] += weight * four.w;
      }
    }
#pragma unroll
    for (int j = 0; j < S::columns; ++j) {
      const int d = j / 4 * 128 + lane * 4 + j % 4;
      if (d < x.head_v) sums[warp * Config::head_v + d] = o[j];
    }
  }
};

template <class Config> TW_GPU void attention_combine(const tw_attention_combine_args &x) {
  if constexpr (Config::early) wait_for_kernel_before();
  RowCombiner<Config> combiner(x);
  const int64_t all = x.batch * x.heads_q * x.rows;
  constexpr int teams = AttentionCombine<Config>::teams;
  for (int64_t number = int64_t(blockIdx.x) * teams + combiner.team; number < all; number += gridDim.x * teams) {
    const int64_t row = number % x.rows, head = number / x.rows % x.heads_q;
    AttentionSequence s{number / x.rows / x.heads_q, 0, 0, 0, 0};
    rows_of(x, s);
    if (row < s.rows) combiner.row(s, head, s.first_row + row);
    combiner.meet();  // nobody's columns are written over before all were added
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_COMBINE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionCombine<Config>::threads) \
      Symbol(const __grid_constant__ tw_attention_combine_args x) { \
    tw::attention_combine<Config>(x); \
  }
#else
#define TW_DEVICE_ATTENTION_COMBINE(Config, Symbol)
#endif
