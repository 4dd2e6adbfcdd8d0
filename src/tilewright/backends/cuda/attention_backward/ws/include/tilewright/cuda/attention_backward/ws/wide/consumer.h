// What a consumer warpgroup of attention's gradients does where both have the same keys: scores of half of the rows,
// then products for half of the columns.
#pragma once
#include <tilewright/cuda/attention_backward/ws/consumer.h>
#include <tilewright/cuda/attention_backward/ws/wide/shape.h>

#ifdef TW_ON_GPU

namespace tw {

// A warpgroup's accumulators of dk, or of dv: of whole blocks of 64 columns, and of its rows for a block that both share.
template <int Whole, bool Odd> struct BackwardWideAccumulators {
  static constexpr int columns = Whole * 64;
  float whole[Whole ? Whole * 32 : 4], shared[Odd ? 32 : 4];
};
template <int Whole, bool Odd> TW_GPU void make_zero(BackwardWideAccumulators<Whole, Odd> &accum) {
  make_zero(accum.whole), make_zero(accum.shared);
}
template <int Whole, bool Odd> TW_GPU void hold(BackwardWideAccumulators<Whole, Odd> &accum) {
  if constexpr (Whole > 0) hold(accum.whole);
  if constexpr (Odd) hold(accum.shared);
}

// Weights of 64 keys, `Rows` rows along k, times `N` columns of these rows: on top of what was there.
template <class S, int N, int Rows>
TW_GPU void add_columns(float (&accum)[N / 2], const char *weights, const char *rows) {
  const uint64_t at_w = operand(weights), at_r = operand(rows, 1024, S::BM * 128);
#pragma unroll
  for (int i = 0; i < Rows / 16; ++i)
    Wgmma<N, typename S::T, 1, 1>::run(accum, at_w + i * (16 * 128 / 16), at_r + i * (16 * 128 / 16), 1);
}
// A warpgroup's columns: `rows` has blocks of 64 side by side.
template <class S, int Blocks, int Whole, bool Odd>
TW_GPU void add_blocks(BackwardWideAccumulators<Whole, Odd> &accum, const char *weights, const char *rows, int who) {
  if constexpr (Whole > 0) add_columns<S, Whole * 64, S::BM>(accum.whole, weights, rows + who * Whole * S::BM * 128);
  if constexpr (Odd)
    add_columns<S, 64, S::SN>(accum.shared, weights + who * S::SN * 128,
                              rows + (Blocks - 1) * S::BM * 128 + who * S::SN * 128);
}
// 64 elements of dq, transposed, of `Rows` rows: keys along k.
template <class S, int Rows> TW_GPU void multiply_piece(float (&dq)[Rows / 2], const char *keys, const char *scores) {
  const uint64_t at_k = operand(keys), at_s = operand(scores);
#pragma unroll
  for (int i = 0; i < S::BN / 16; ++i)
    Wgmma<Rows, typename S::T, 1, 0>::run(dq, at_k + i * (16 * 128 / 16), at_s + i * 2, i > 0);
}

template <class S, class Config> struct BackwardWideMultiplier : BackwardMultiplier<S, Config> {
  using Base = BackwardMultiplier<S, Config>;
  using Base::differentiate, Base::round, Base::store_scores;
  using Base::shared, Base::who, Base::rows, Base::outs, Base::parity;
  using Base::sync, Base::give_back, Base::give_back_rows, Base::scores, Base::gradients, Base::weigh,
      Base::weigh_scored;
  using Dk = BackwardWideAccumulators<S::whole_d, S::odd_d>;
  using Dv = BackwardWideAccumulators<S::whole_v, S::odd_v>;
  using Base::Base;

  TW_GPU void run(Dk &dk, Dv &dv) { Base::all_steps(*this, dk, dv); }

 private:
  friend Base;
  TW_GPU char *weights() const { return shared.scores(parity); }
  TW_GPU char *changes() const { return weights() + S::weight_bytes; }

  // Weights and gradients of scores go to shared memory, where both warpgroups multiply them.
  TW_GPU void weigh_rows(BackwardScores<S> &s, int tile, int head) const {
    BackwardScores<S> dp;
    BackwardKept<S> kept;
    BackwardWeights<S> p, ds;
    if constexpr (S::Ahead) {
      wgmma_wait<0>();
      hold(s);
      gradients(dp);
    } else {
      gradients(dp);
      wgmma_wait<1>();
      hold(s);
    }
    if constexpr (S::Scored) weigh_scored(s, p, kept, tile, head);
    else weigh(s, tile), round(p, s);
    store_scores(weights(), p);
    wgmma_wait<0>();
    hold(dp);
    differentiate(dp, s, kept, tile, head);
    round(ds, dp);
    store_scores(changes(), ds);
    fence_async_proxy();
  }

  template <bool Last> TW_GPU void step(BackwardScores<S> &s, Dk &dk, Dv &dv, BackwardSteps &steps) {
    const int tile = steps.tile, head = steps.head;
    if constexpr (!S::Ahead) scores(s, rows.stage, rows.phase, tile);
    shared.full_o(outs.stage).wait(outs.phase);
    this->clear_outs(tile);
    weigh_rows(s, tile, head);
    sync();  // whoever comes here has done with the products of the stage that is written next
    float dq[S::BM / 2];
    wgmma_fence();
    if constexpr (S::whole_d > 0) multiply_piece<S, S::BM>(dq, shared.k() + who * S::whole_d * S::BN * 128, changes());
    wgmma_commit();
    hold(dk), hold(dv);
    wgmma_fence();
    add_blocks<S, S::blocks_v>(dv, weights(), shared.o(outs.stage), who);
    add_blocks<S, S::blocks_d>(dk, changes(), shared.q(rows.stage), who);
    wgmma_commit();
    if constexpr (S::whole_d > 0) {
      wgmma_wait<1>();
      hold(dq);
      store_piece<S::BM>(dq);
    }
    const char *change = changes();
    parity ^= 1;
    if constexpr (S::whole_d > 1) {
      wgmma_fence();
      multiply_piece<S, S::BM>(dq, shared.k() + (who * S::whole_d + 1) * S::BN * 128, change);
      wgmma_commit();
      finish<Last>(s, dk, dv, steps);
      hold(dq);
      store_piece<S::BM>(dq);
    } else if constexpr (S::odd_d) {
      float half[S::SN / 2];
      wgmma_fence();
      multiply_piece<S, S::SN>(half, shared.k() + (S::blocks_d - 1) * S::BN * 128, change + who * S::SN * 128);
      wgmma_commit();
      finish<Last>(s, dk, dv, steps);
      hold(half);
      store_piece<S::SN>(half);
    } else {
      wgmma_commit();  // of nothing, so that what is waited for is the same
      finish<Last>(s, dk, dv, steps);
    }
  }
  // dk and dv have these rows; the scores of the next tile are under way, and what was multiplied last is there.
  template <bool Last> TW_GPU void finish(BackwardScores<S> &s, Dk &dk, Dv &dv, BackwardSteps &steps) {
    wgmma_wait<1>();
    hold(dk), hold(dv);
    give_back(shared.empty_o(outs.stage)), outs.next();
    give_back_rows(shared.empty_q(rows.stage)), rows.next();
    steps.next();
    if constexpr (S::Ahead && !Last) {
      scores(s, rows.stage, rows.phase, steps.tile);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
  }

  // Into boxes of 32 elements of half of the rows, as TMA swizzles them.
  template <int Rows> TW_GPU void store_piece(const float (&dq)[Rows / 2]) const {
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x % 128) / 32;
    named_barrier(backward_dq_empty + who, 160);
    char *to = shared.dq(who) + warp / 2 * S::box_bytes + lane / 4 % 4 * 4;
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int line = lane % 4 * 2 + e, piece = warp % 2 * 4 + h * 2 + lane / 16;
        char *at = to + line * 128 + (piece ^ line) * 16;
#pragma unroll
        for (int j = 0; j < Rows / 8; ++j)
          *reinterpret_cast<float *>(at + j * 8 / S::dq_rows * 2 * S::box_bytes + j * 8 % S::dq_rows * 128) =
              dq[j * 4 + h * 2 + e];
      }
    fence_async_proxy();
    named_arrive(backward_dq_full + who, 160);
  }

  // The second warpgroup hands its accumulators of shared blocks to the first, where weights were.
  TW_GPU void put_together(Dk &dk, Dv &dv) const {
    if constexpr (S::odd_d || S::odd_v) {
      sync();
      float *to = reinterpret_cast<float *>(shared.scores(0)) + threadIdx.x % 128;
      if (who == 1) {
        if constexpr (S::odd_d) hand(to, dk.shared);
        if constexpr (S::odd_v) hand(to + S::odd_d * 64 * 64, dv.shared);
      }
      sync();
      if (who == 0) {
        if constexpr (S::odd_d) take(dk.shared, to);
        if constexpr (S::odd_v) take(dv.shared, to + S::odd_d * 64 * 64);
      }
    }
  }
  TW_GPU static void hand(float *to, const float (&accum)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) to[i * 128] = accum[i];
  }
  TW_GPU static void take(float (&accum)[32], const float *from) {
#pragma unroll
    for (int i = 0; i < 32; ++i) accum[i] += from[i * 128];
  }
};

}  // namespace tw
#endif
