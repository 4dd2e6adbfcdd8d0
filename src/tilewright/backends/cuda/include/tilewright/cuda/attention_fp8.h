// Attention by the fp8 pipeline: a warp that feeds, three that turn values, and warpgroups that multiply, persistent.
#pragma once
#include <tilewright/cuda/attention_fp8_shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention_fp8_feed.h>
#include <tilewright/cuda/attention_leave.h>
#include <tilewright/cuda/attention_scores.h>
#include <tilewright/cuda/narrow.h>
#include <tilewright/cuda/wgmma_registers.h>

namespace tw {

// A multiplying warpgroup.
template <class S, class Config> struct Fp8Attender {
  using Scores = float[S::BN / 2];
  using Results = float[S::DV / 2];
  using Weights = uint32_t[S::BN / 32][4];
  static constexpr float larger = 256;  // weights than they are
  const AttentionWsArgs &x;
  const SharedFp8<S> &shared;
  int who;
  Ring<S::Stages> keys, values;
  Ring<1> rows;
  float fold = 0;    // as that of the arguments, with the scales of the item
  float scores = 1;  // these scales, where something comes between
  bool flip = false;

  TW_GPU Fp8Attender(const AttentionWsArgs &args, const SharedFp8<S> &memory)
      : x(args), shared(memory), who(int(threadIdx.x) / 128 - 1) {}

  TW_GPU void run() {
    if (S::W > 1 && who == S::W - 1) named_arrive(1, 256);  // the first turn is the first one's
    const Dropout dropout = Config::dropout ? dropout_of(x.x) : Dropout{};
    AttentionOrder<S> order(x);
    AttentionItem item;
    while (order.next(item)) attend(item, dropout);
  }

 private:
  TW_GPU void take_turn() const {
    if (S::W > 1) named_barrier(1 + who, 256);
  }
  TW_GPU void give_turn() const {
    if (S::W > 1) named_arrive(who == S::W - 1 ? 1 : 2 + who, 256);
  }
  TW_GPU void give_back(Barrier &empty) const {
    if (threadIdx.x % 128 == 0) empty.arrive();
  }

  // Factors of rows and keys are one number here: heads are not mixed, and blocks of rows have none.
  TW_GPU void attend(const AttentionItem &item, const Dropout &dropout) {
    const tw_attention_args &a = x.x;
    const int head = x.by_group.quotient(item.head);
    float of_scores = 1, of_values = 1;
    if constexpr (Config::scales != AttentionScales::none) {
      of_scores = scale_at(a.q_scales, item.sequence, item.head, 0) * scale_at(a.k_scales, item.sequence, head, 0);
      of_values = scale_at(a.v_scales, item.sequence, head, 0);
    }
    const float size = fabsf(of_scores);
    scores = of_scores, flip = (of_scores < 0) != bool(x.flip);
    fold = S::scored ? x.fold : fmaxf(x.fold * size, 1e-37f);
    const KeyTiles tiles = tiles_of<S>(x, item);
    Softmax softmax;
    Results o;
#pragma unroll
    for (int i = 0; i < S::DV / 2; ++i) o[i] = 0;
    if (tiles.count > 0) walk(item, tiles, dropout, softmax, o);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      softmax.sum[r] *= 1 / larger;
      if (!S::scored && softmax.top[r] > no_score()) softmax.top[r] *= size;
    }
#pragma unroll
    for (int i = 0; i < S::DV / 2; ++i) o[i] *= of_values * (1 / larger);
    leave<S, Config>(x, item, rows_of_thread<S>(x, item, who), softmax, o, dropout);
  }

  TW_GPU void walk(const AttentionItem &item, const KeyTiles &tiles, const Dropout &dropout, Softmax &softmax,
                   Results &o) {
    const WholeTiles seen = wholly_seen<S>(x, item, who);
    const char *q = shared.q() + who * 64 * S::line;
    Scores s;
    Weights p;
    float factor[2];
    shared.full_q().wait(rows.phase), rows.next();
    shared.full_k(keys.stage).wait(keys.phase);
    hold(s);
    wgmma_fence();
    multiply_keys(s, q);
    wgmma_commit();
    wgmma_wait<0>();
    hold(s);
    give_back(shared.empty_k(keys.stage)), keys.next();
    if (tiles.count == 1) give_back(shared.empty_q());
    judge(s, item, tiles.template at<S>(0), seen, dropout, softmax, factor);
    round(p, s);
#pragma unroll 1
    for (int i = 1; i < tiles.count; ++i) {
      shared.full_k(keys.stage).wait(keys.phase);
      take_turn();
      hold(s), hold(o);
      wgmma_fence();
      multiply_keys(s, q);
      wgmma_commit();
      shared.full_turned(values.stage).wait(values.phase);
      multiply_values(o, p);
      wgmma_commit();
      give_turn();
      wgmma_wait<1>();
      hold(s);
      give_back(shared.empty_k(keys.stage)), keys.next();
      if (i == tiles.count - 1) give_back(shared.empty_q());
      judge(s, item, tiles.template at<S>(i), seen, dropout, softmax, factor);
      hold(s);  // exponentials before the wait, which they run beside
      wgmma_wait_behind<0>(fminf(softmax.sum[0], softmax.sum[1]));
      hold(o);
      give_back(shared.empty_turned(values.stage)), values.next();
      round(p, s);
#pragma unroll
      for (int j = 0; j < S::DV / 2; ++j) o[j] *= factor[j / 2 % 2];
    }
    shared.full_turned(values.stage).wait(values.phase);
    hold(o);
    wgmma_fence();
    multiply_values(o, p);
    wgmma_commit();
    wgmma_wait<0>();
    hold(o);
    give_back(shared.empty_turned(values.stage)), values.next();
  }

  TW_GPU void multiply_keys(Scores &s, const char *q) const {
    const uint64_t at_q = operand(q), at_k = operand(shared.k(keys.stage));
#pragma unroll
    for (int i = 0; i < S::D / 32; ++i)
      Wgmma<S::BN, typename S::T, 0, 0>::run(s, at_q + i / 4 * (S::BM * S::line / 16) + i % 4 * 2,
                                             at_k + i / 4 * (S::BN * S::line / 16) + i % 4 * 2, i > 0);
  }
  TW_GPU void multiply_values(Results &o, Weights &p) const {
    const uint64_t at_v = operand(shared.turned(values.stage));
#pragma unroll
    for (int i = 0; i < S::BN / 32; ++i)
      WgmmaRegisters<S::DV, typename S::T, 0>::run(o, p[i], at_v + i / 4 * (S::DV * S::line / 16) + i % 4 * 2, 1);
  }

  // Scores as they come from the multiplication become weights.
  TW_GPU void judge(Scores &s, const AttentionItem &item, int tile, const WholeTiles &seen, const Dropout &dropout,
                    Softmax &softmax, float (&factor)[2]) const {
    const int key = tile * S::BN;
    if constexpr (S::scored) {
      if constexpr (Config::scales != AttentionScales::none)
#pragma unroll
        for (int i = 0; i < S::BN / 2; ++i) s[i] *= scores;
      add_to_scores<S, Config>(s, x, item, rows_of_thread<S>(x, item, who), key);
    } else if (flip) {
      negate<S>(s);
    }
    if (tile < seen.low || tile >= seen.high) hide<S>(s, x, item, rows_of_thread<S>(x, item, who), key);
    weigh_larger(s, softmax, factor);
    if constexpr (Config::dropout) drop<S>(s, x, item, rows_of_thread<S>(x, item, who), dropout, key);
  }
  // Scores become exponentials, 2^8 times as large; `factor` is what rows had before must be multiplied by.
  TW_GPU void weigh_larger(Scores &s, Softmax &softmax, float (&factor)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float tops[4] = {softmax.top[r], s[r * 2 + 1], s[4 + r * 2], s[4 + r * 2 + 1]};
#pragma unroll
      for (int i = 0; i < S::BN / 4; ++i) tops[i % 4] = fmaxf(tops[i % 4], s[i / 2 * 4 + r * 2 + i % 2]);
      float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
      top = fmaxf(top, lane_xor(top, 1));
      top = fmaxf(top, lane_xor(top, 2));
      const float base = top == no_score() ? 0.0f : top * fold;
      factor[r] = exp2_fast(softmax.top[r] * fold - base);
      softmax.top[r] = top;
      float sums[4] = {softmax.sum[r] * factor[r], 0, 0, 0};
#pragma unroll
      for (int i = 0; i < S::BN / 4; ++i) {
        float &one = s[i / 2 * 4 + r * 2 + i % 2];
        one = exp2_fast(one * fold - (base - 8));
        sums[i % 4] += one;
      }
      softmax.sum[r] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  }
  // Of 32 keys a thread has two of each eight: four of 16 are one word, in the order values were turned to.
  TW_GPU void round(Weights &p, const Scores &s) const {
#pragma unroll
    for (int i = 0; i < S::BN / 32; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float *two = s + i * 16 + j / 2 * 8 + j % 2 * 2;
        p[i][j] = quad(typename S::T{}, two[0], two[1], two[4], two[5]);
      }
  }
};

template <class S, class Config> TW_GPU void attention_fp8(const TensorMap &map_q, const TensorMap &map_k,
                                                           const TensorMap &map_v, const AttentionWsArgs &x) {
  const SharedFp8<S> shared;
  if (threadIdx.x == 0) {
    tma_prefetch(&map_q);
    tma_prefetch(&map_k);
    tma_prefetch(&map_v);
    shared.init();
  }
  __syncthreads();
  const int warp = int(threadIdx.x) / 32;
  if (threadIdx.x < 128) {
    give_registers<S::feeding_registers>();
    if (warp == 0) Fp8Feeder<S>{map_q, map_k, map_v, x, shared}.run();
    else ValueTurner<S>{x, shared, warp - 1}.run();
  } else {
    take_registers<S::multiplying_registers>();
    Fp8Attender<S, Config>(x, shared).run();
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_FP8(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionFp8<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap q, const __grid_constant__ tw::TensorMap k, \
             const __grid_constant__ tw::TensorMap v, const __grid_constant__ tw::AttentionWsArgs x) { \
    tw::attention_fp8<tw::AttentionFp8<Config>, Config>(q, k, v, x); \
  }
#else
#define TW_DEVICE_ATTENTION_FP8(Config, Symbol)
#endif
