// Splits of attention combined: a team of warps for a row of one head, which share its splits; several teams a block.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/gpu/types.h>

namespace tw {

// Config: what attention_rules.h says, warps, and early: it may come in before the kernel before it is done.
template <class Config> struct AttentionCombine {
  static constexpr int warps = Config::warps, teams = warps < 4 ? 4 / warps : 1, threads = 32 * warps * teams;
  static constexpr int columns = (Config::head_v + 127) / 128 * 4;       // of a lane, four at a time
  static constexpr int at_once = columns > 8 ? 2 : columns > 4 ? 4 : 8;  // splits that are under way
  static constexpr int warp_floats = Config::head_v + 4,
                       team_floats = warps * warp_floats;  // accumulators, their weight and maximum
  static constexpr int shared_bytes = teams * team_floats * 4;
  static constexpr int ctas_per_sm = columns > 4 ? 1 : 1024 / threads;  // blocks that registers are kept for
};

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/cuda/primitives/fast_math.h>

namespace tw {

template <class Config> struct RowCombiner {
  using S = AttentionCombine<Config>;
  const tw_attention_combine_args &x;
  float
      *team_accum;  // of each warp: accumulators of its columns, then of its weights, and the lse these are relative to
  int warp, lane = int(threadIdx.x) % 32, team;

  TW_GPU explicit RowCombiner(const tw_attention_combine_args &args)
      : x(args), warp(int(threadIdx.x) / 32 % S::warps), team(int(threadIdx.x) / 32 / S::warps) {
    team_accum = reinterpret_cast<float *>(dynamic_shared()) + team * S::team_floats;
  }
  TW_GPU void sync() const {
    if constexpr (S::warps == 1) __syncwarp();
    else named_barrier(1 + team, 32 * S::warps);
  }

  TW_GPU void row(const AttentionSequence &s, int64_t head, int64_t row) {
    add_splits(static_cast<const float *>(x.parts) + s.index * x.part_strides.batch + row * x.part_strides.row +
                   head * x.part_strides.head,
               static_cast<const float *>(x.part_lse) + s.index * x.part_lse_batch + head * x.part_lse_head + row);
    sync();
    float top = nothing(), sum = 0, factor[S::warps];
#pragma unroll
    for (int w = 0; w < S::warps; ++w) top = fmaxf(top, of_warp(w)[Config::head_v + 1]);
#pragma unroll
    for (int w = 0; w < S::warps; ++w) {
      factor[w] = weight(of_warp(w)[Config::head_v + 1], top);
      sum += factor[w] * of_warp(w)[Config::head_v];
    }
    typename Config::O *to = static_cast<typename Config::O *>(x.o) + s.index * x.o_strides.batch +
                             row * x.o_strides.row + head * x.o_strides.head;
    for (int d = warp * 32 + lane; d < x.head_v; d += 32 * S::warps) {
      float value = 0;
#pragma unroll
      for (int w = 0; w < S::warps; ++w) value += factor[w] * of_warp(w)[d];
      round_to(sum == 0 ? 0.0f : value / sum, to[d]);
    }
    if (Config::lse && warp == 0 && lane == 0)
      static_cast<float *>(x.lse)[s.index * x.lse_batch + head * x.lse_head + row] =
          sum == 0 ? nothing() : top + logf(sum);
  }

 private:
  TW_GPU static float nothing() { return -INFINITY; }
  // Of a split with nothing seen 0, whatever the largest is; what is no number stays that.
  TW_GPU static float weight(float lse, float top) {
    return lse == nothing() ? 0.0f : exp2_fast((lse - top) * 1.44269504f);
  }
  TW_GPU float *of_warp(int w) const { return team_accum + w * S::warp_floats; }

  // The splits of this warp, several at a time, each with its lse: nothing is waited for twice.
  TW_GPU void add_splits(const float *parts, const float *lse) {
    constexpr int U = S::at_once, quads = S::columns / 4;
    float4 o[quads] = {};
    float top = nothing(), sum = 0;
#pragma unroll 1
    for (int first = warp; first < int(x.splits); first += U * S::warps) {
      float own[U], higher = top;
      float4 four[U][quads];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const int p = first + u * S::warps;
        own[u] = p < int(x.splits) ? lse[p * x.part_lse_split] : nothing();
#pragma unroll
        for (int j = 0; j < quads; ++j) {
          const int d = j * 128 + lane * 4;
          four[u][j] = p < int(x.splits) && d < x.head_v
                           ? *reinterpret_cast<const float4 *>(parts + p * x.part_split + d)
                           : float4{0, 0, 0, 0};
        }
      }
#pragma unroll
      for (int u = 0; u < U; ++u) higher = fmaxf(higher, own[u]);
      const float before = weight(top, higher);
      top = higher, sum *= before;
#pragma unroll
      for (int j = 0; j < quads; ++j) o[j].x *= before, o[j].y *= before, o[j].z *= before, o[j].w *= before;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const float w = weight(own[u], top);
        sum += w;
#pragma unroll
        for (int j = 0; j < quads; ++j) {
          // A split that nothing was seen in is zeros, whatever its weight.
          o[j].x += w * four[u][j].x, o[j].y += w * four[u][j].y;
          o[j].z += w * four[u][j].z, o[j].w += w * four[u][j].w;
        }
      }
    }
    float *to = of_warp(warp);
#pragma unroll
    for (int j = 0; j < quads; ++j) {
      const int d = j * 128 + lane * 4;
      if (d < x.head_v) *reinterpret_cast<float4 *>(to + d) = o[j];
    }
    if (lane == 0) to[Config::head_v] = sum, to[Config::head_v + 1] = top;
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
    combiner.sync();  // nobody's columns are written over before all were added
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_COMBINE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionCombine<Config>::threads, \
                                               tw::AttentionCombine<Config>::ctas_per_sm) \
      Symbol(const __grid_constant__ tw_attention_combine_args x) { \
    tw::attention_combine<Config>(x); \
  }
#else
#define TW_DEVICE_ATTENTION_COMBINE(Config, Symbol)
#endif
