// Attention by the fp8 pipeline: a producer warp, three warps that transpose values, and consumer warpgroups, persistent.
#pragma once
#include <tilewright/cuda/attention/fp8/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention/fp8/producer.h>
#include <tilewright/cuda/attention/epilogue_store.h>
#include <tilewright/cuda/attention/fp8/scores.h>
#include <tilewright/cuda/primitives/narrow.h>
#include <tilewright/cuda/primitives/wgmma_registers.h>

namespace tw {

// One of the thread's rows.  Of 16 columns the even ones are one block of results and the odd ones the next, so that a
// thread has four that are neighbours.  `to` may be nothing.
template <class S>
TW_GPU void store_spread_row(const float (&o)[S::DV / 2], int r, float factor, typename S::O *to, int columns) {
  const auto times = [factor](float value) { return factor == 0 ? 0.0f : value * factor; };
#pragma unroll
  for (int i = 0; i < S::DV / 16; ++i) {
    const float *even = o + i * 8 + r * 2, *odd = even + 4;
    const int column = i * 16 + int(threadIdx.x % 4) * 4;
    if (!to || column >= columns) continue;
    const float four[4] = {times(even[0]), times(odd[0]), times(even[1]), times(odd[1])};
    if constexpr (sizeof(typename S::O) == 2)
      *reinterpret_cast<uint2 *>(to + column) =
          uint2{pair(typename S::O{}, four[0], four[1]), pair(typename S::O{}, four[2], four[3])};
    else *reinterpret_cast<float4 *>(to + column) = float4{four[0], four[1], four[2], four[3]};
  }
}

// An item a warpgroup works on.
struct Fp8Work {
  const AttentionItem &item;
  const KeyTiles &tiles;
  WholeTiles seen;
  const Dropout &dropout;
};

// A consumer warpgroup.
template <class S, class Config> struct Fp8Attender {
  using First = float[S::first / 2];
  using Second = float[S::second / 2];
  using Results = float[S::DV / 2];
  using Weights = uint32_t[S::BN / 32][4];
  static constexpr int larger = 8;  // weights than they are, as a power of 2
  const AttentionWsArgs &x;
  const SharedFp8<S> &shared;
  int who;
  Ring<S::Stages> keys, values;
  Ring<1> rows;
  float fold = 0;    // as that of the arguments, with the scales of the item
  float scores = 1;  // these scales, where something comes between
  bool flip = false;

  TW_GPU Fp8Attender(const AttentionWsArgs &args, const SharedFp8<S> &memory)
      : x(args), shared(memory), who(consumer_warpgroup()) {}

  TW_GPU void run() {
    const Dropout dropout = Config::dropout ? dropout_of(x.x) : Dropout{};
    AttentionOrder<S> order(x);
    AttentionItem item;
    while (order.next(item)) attend(item, dropout);
  }

 private:
  // Factors of rows and keys are one number here: heads are not mixed, and blocks of rows have none.
  TW_GPU void attend(const AttentionItem &item, const Dropout &dropout) {
    const tw_attention_args &a = x.x;
    const int head = x.by_group.quotient(item.head);
    float of_scores = 1, of_values = 1;
    if constexpr (Config::scales != AttentionScales::none) {
      of_scores = scale_at(a.q_scales, item.sequence, item.head, 0) * scale_at(a.k_scales, item.sequence, head, 0);
      of_values = scale_at(a.v_scales, item.sequence, head, 0);
    }
    const float size = fabsf(of_scores), over_larger = 1.0f / float(1 << larger);
    scores = of_scores, flip = (of_scores < 0) != bool(x.flip);
    fold = S::scored ? x.fold : fmaxf(x.fold * size, 1e-37f);
    const KeyTiles tiles = tiles_of<S>(x, item);
    Softmax softmax;
    Results o;
#pragma unroll
    for (int i = 0; i < S::DV / 2; ++i) o[i] = 0;
    if (tiles.count > 0) traversal({item, tiles, wholly_seen<S>(x, item, who), dropout}, softmax, o);
    const ThreadRows place = rows_of_thread<S>(x, item, who);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      softmax.sum[r] *= over_larger;
      if (!S::scored && softmax.top[r] > no_score()) softmax.top[r] *= size;
      const float factor = finish_row<S, Config>(x, item, place, softmax, r, dropout) * (of_values * over_larger);
      store_spread_row<S>(o, r, factor, place_of_row<S>(x, item, place, r), int(a.head_v));
    }
  }

  // Tiles go in two parts.  As soon as the weights of a part are there its products are issued: those with values, and the
  // scores of the same part of the next tile, in whose place these weights were scores.  So products run beside the
  // exponentials of the other part, and the scores that are looked at next are there when they are needed.
  TW_GPU void traversal(const Fp8Work &work, Softmax &softmax, Results &o) {
    First a;
    Second b;
    Weights p;
    Bases bases;
    const int last = work.tiles.count - 1;
    float tops[2] = {softmax.top[0], softmax.top[1]};
    shared.full_q().wait(rows.phase), rows.next();
    shared.full_k(keys.stage).wait(keys.phase);
    hold(a), hold(b);
    wgmma_fence();
    multiply_keys<S::first, 0>(a);
    multiply_keys<S::second, S::first>(b);
    wgmma_commit();
    wgmma_wait<0>();
    hold(a), hold(b);
    give_back_keys(last == 0);
    look<0>(a, work, 0, tops, true);
    look<S::first>(b, work, 0, tops, true);
    settle_bases<larger>(tops, fold, softmax, bases);
#pragma unroll 1
    for (int i = 0; i < last; ++i) {
      const uint32_t keys_there = shared.full_k(keys.stage).there(keys.phase),
                     values_there = shared.full_transposed(values.stage).there(values.phase);
      weigh<0>(a, p, work, i, softmax, bases);
      shared.full_k(keys.stage).wait_unless(keys_there, keys.phase);
      shared.full_transposed(values.stage).wait_unless(values_there, values.phase);
      hold(a), hold(o);
      wgmma_fence();
      multiply_keys<S::first, 0>(a);
      multiply_values<S::first, 0>(o, p);
      wgmma_commit();
      come_behind(fminf(softmax.sum[0], softmax.sum[1]));  // nothing of what follows is drawn before the products
      weigh<S::first>(b, p, work, i, softmax, bases);
      hold(b);
      wgmma_fence();
      multiply_keys<S::second, S::first>(b);
      wgmma_commit();
      multiply_values<S::second, S::first>(o, p);
      wgmma_commit();
      tops[0] = softmax.top[0], tops[1] = softmax.top[1];
      wgmma_wait<2>();
      hold(a);
      look<0>(a, work, i + 1, tops, bases.low);
      wgmma_wait_behind<1>(fabsf(fminf(tops[0], tops[1])));
      hold(b);
      give_back_keys(i + 1 == last);
      look<S::first>(b, work, i + 1, tops, bases.low);
      settle_bases<larger>(tops, fold, softmax, bases);
      wgmma_wait_behind<0>(fminf(bases.factor[0], bases.factor[1]));
      hold(o);
      give_back(shared.empty_transposed(values.stage)), values.next();
      scale_rows(o, bases.factor);
    }
    weigh<0>(a, p, work, last, softmax, bases);
    weigh<S::first>(b, p, work, last, softmax, bases);
    end(o, p);
  }
  // The values of the last one.
  TW_GPU void end(Results &o, Weights &p) {
    shared.full_transposed(values.stage).wait(values.phase);
    hold(o);
    wgmma_fence();
    multiply_values<S::first, 0>(o, p);
    multiply_values<S::second, S::first>(o, p);
    wgmma_commit();
    wgmma_wait<0>();
    hold(o);
    give_back(shared.empty_transposed(values.stage)), values.next();
  }
  // What products of keys read; of the last tile the rows too.
  TW_GPU void give_back_keys(bool last) {
    give_back(shared.empty_k(keys.stage)), keys.next();
    if (last) give_back(shared.empty_q());
  }

  template <int Keys, int From> TW_GPU void multiply_keys(float (&s)[Keys / 2]) const {
    const uint64_t at_q = operand(shared.q() + who * 64 * S::line),
                   at_k = operand(shared.k(keys.stage) + From * S::line);
#pragma unroll
    for (int i = 0; i < S::D / 32; ++i)
      Wgmma<Keys, typename S::T, 0, 0>::run(s, at_q + i / 4 * (S::BM * S::line / 16) + i % 4 * 2,
                                            at_k + i / 4 * (S::BN * S::line / 16) + i % 4 * 2, i > 0);
  }
  template <int Keys, int From> TW_GPU void multiply_values(Results &o, Weights &p) const {
    const uint64_t at_v = operand(shared.transposed(values.stage));
#pragma unroll
    for (int i = From / 32; i < (From + Keys) / 32; ++i)
      WgmmaRegisters<S::DV, typename S::T, 0>::run(o, p[i], at_v + i / 4 * (S::DV * S::line / 16) + i % 4 * 2, 1);
  }

  // A part's scores as they come from the multiplication: what is added, what is hidden, how large they are.
  template <int From, int Count>
  TW_GPU void look(float (&s)[Count], const Fp8Work &work, int number, float (&tops)[2], bool low) const {
    using P = Fp8Part<S, Count * 2>;
    const int tile = work.tiles.template at<S>(number), key = tile * S::BN + From;
    if constexpr (S::scored) {
      if constexpr (Config::scales != AttentionScales::none)
#pragma unroll
        for (int i = 0; i < Count; ++i) s[i] *= scores;
      add_to_scores<P, Config>(s, x, work.item, rows_of_thread<S>(x, work.item, who), key);
    } else if (flip) {
      negate<P>(s);
    }
    if (tile < work.seen.low || tile >= work.seen.high)
      hide<P>(s, x, work.item, rows_of_thread<S>(x, work.item, who), key);
    raise_tops<P>(tops, s, low);
  }
  // Of 32 keys a thread has two of each eight: four of 16 are one word, in the order values were transposed to.
  template <int From, int Count> TW_GPU void weigh(float (&s)[Count], Weights &p, const Fp8Work &work, int number,
                                                   Softmax &softmax, const Bases &bases) const {
    using P = Fp8Part<S, Count * 2>;
    take_exponentials<P>(s, fold, softmax, bases);
    if constexpr (Config::dropout)
      drop<P>(s, x, work.item, rows_of_thread<S>(x, work.item, who), work.dropout,
              work.tiles.template at<S>(number) * S::BN + From);
#pragma unroll
    for (int i = 0; i < Count / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float *two = s + i * 16 + j / 2 * 8 + j % 2 * 2;
        p[From / 32 + i][j] = quad(typename S::T{}, two[0], two[1], two[4], two[5]);
      }
  }
};

template <class S, class Config> TW_GPU void attention_fp8(const TensorMap &map_q, const TensorMap &map_k,
                                                           const TensorMap &map_v, const AttentionWsArgs &x) {
  const SharedFp8<S> shared;
  enter<S>(shared, map_q, map_k, map_v);
  const int warp = int(threadIdx.x) / 32;
  if (threadIdx.x < 128) {
    deallocate_registers<S::producer_registers>();
    if (warp == 0) Fp8Producer<S>{map_q, map_k, map_v, x, shared}.run();
    else ValueTurner<S>{x, shared, warp - 1}.run();
  } else {
    allocate_registers<S::consumer_registers>();
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
