// What a consumer warpgroup of attention's gradients does with a tile of rows: five products, of which the scores of
// the next tile run beside the last of this one.
//
// As wgmma keeps 64 x N accumulators: a thread has two keys, 8 apart, and of each block of eight rows two that are neighbours.
#pragma once
#include <tilewright/cuda/attention_backward/ws/producer.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention_backward/ws/scored.h>
#include <tilewright/cuda/primitives/fast_math.h>
#include <tilewright/cuda/primitives/wgmma_registers.h>

namespace tw {

template <class S> using BackwardScores = float[S::SN / 2];
template <class S> using BackwardWeights = uint32_t[S::SN / 16][4];  // of 16 rows each
template <class S> using BackwardDq = float[S::dq_rows / 2];

// 64 keys (or values) times a tile of rows: dot products over D elements of a head.
template <class S, int D> TW_GPU void multiply_rows(BackwardScores<S> &s, const char *keys, const char *rows) {
  const uint64_t at_k = operand(keys), at_r = operand(rows);
#pragma unroll
  for (int i = 0; i < D / 16; ++i)
    Wgmma<S::SN, typename S::T, 0, 0>::run(s, at_k + i / 4 * (S::BN * 128 / 16) + i % 4 * 2,
                                           at_r + i / 4 * (S::BM * 128 / 16) + i % 4 * 2, i > 0);
}
// Weights of 64 keys, rows along k, times these rows: on top of what was there.
template <class S, int D> TW_GPU void add_rows(float (&accum)[D / 2], BackwardWeights<S> &weights, const char *rows) {
  const uint64_t at = operand(rows, 1024, S::BM * 128);
#pragma unroll
  for (int i = 0; i < S::BM / 16; ++i)
    WgmmaRegisters<D, typename S::T, 1>::run(accum, weights[i], at + i * (16 * 128 / 16), 1);
}
// 64 elements of dq, transposed: keys of both warpgroups along k.
template <class S> TW_GPU void multiply_dq(BackwardDq<S> &dq, const char *keys, const char *scores) {
  const uint64_t at_k = operand(keys), at_s = operand(scores);
#pragma unroll
  for (int i = 0; i < S::BN / 16; ++i)
    Wgmma<S::dq_rows, typename S::T, 1, 0>::run(dq, at_k + i * (16 * 128 / 16),
                                                at_s + i / 4 * (S::BM * 128 / 16) + i % 4 * 2, i > 0);
}

template <class S, class Config> struct BackwardMultiplier {
  using T = typename S::T;
  const AttentionBackwardWsArgs &x;
  const SharedBackward<S> &shared;
  const BackwardItem &item;
  const int who;
  Ring<S::QStages> rows;
  Ring<S::DoStages> outs;
  int parity = 0;  // of the stage for gradients of scores

  TW_GPU BackwardMultiplier(const AttentionBackwardWsArgs &args, const SharedBackward<S> &memory,
                            const BackwardItem &of, int warpgroup)
      : x(args), shared(memory), item(of), who(warpgroup) {}

  using Dk = float[S::D / 2];
  using Dv = float[S::DV / 2];
  TW_GPU void run(Dk &dk, Dv &dv) { all_steps(*this, dk, dv); }

 protected:
  // Of whoever is derived from this one too, with iterations and accumulators of its own.
  template <class Derived>
  TW_GPU static void all_steps(Derived &self, typename Derived::Dk &dk, typename Derived::Dv &dv) {
    BackwardSteps steps(self.item, self.x.group);
    if (!steps.more()) return;
    BackwardScores<S> s;
    self.shared.full_k().wait(0);
    self.shared.full_v().wait(0);
    self.clear_keys();
    hold(dk), hold(dv);
    if constexpr (S::Ahead) self.scores(s, self.rows.stage, self.rows.phase, steps.tile);
#pragma unroll 1
    while (steps.left > (S::Ahead ? 1 : 0)) self.template step<false>(s, dk, dv, steps);
    if constexpr (S::Ahead) self.template step<true>(s, dk, dv, steps);
    self.put_together(dk, dv);
  }
  TW_GPU void put_together(Dk &, Dv &) const {}  // each warpgroup has its own accumulators

  TW_GPU void sync() const { named_barrier(backward_sync, 128 * S::W); }
  TW_GPU void give_back(Barrier &empty) const {
    if (threadIdx.x % 128 == 0) empty.arrive();
  }
  // Each thread for itself, of what it read: racecheck follows no order that a named barrier and an arrival make together.
  TW_GPU void give_back_rows(Barrier &empty) const { empty.arrive(); }

  // Numbers behind the last row or key are whatever lies there: a weight of 0 does not make 0 of a NaN.
  template <int Blocks> TW_GPU void clear_behind(char *tile, int lines, int there) const {
    const int pieces = (lines - there) * 8;
    for (int i = int(threadIdx.x) - 128; i < pieces * Blocks; i += 128 * S::W)
      *reinterpret_cast<uint4 *>(tile + i / pieces * lines * 128 + there * 128 + i % pieces * 16) = uint4{0, 0, 0, 0};
  }
  TW_GPU void clear_keys() const {
    const int there = item.keys - item.tile * S::BN;
    if (!x.loose_keys || there >= S::BN) return;
    clear_behind<S::blocks_d>(shared.k(), S::BN, there);
    clear_behind<S::blocks_v>(shared.v(), S::BN, there);
    fence_async_proxy();
    sync();
  }
  TW_GPU void clear_outs(int tile) const {
    const int there = item.rows - tile * S::BM;
    if (!x.loose_rows || there >= S::BM) return;
    clear_behind<S::blocks_v>(shared.o(outs.stage), S::BM, there);
    fence_async_proxy();
    sync();
  }
  // Rows behind the last, and numbers behind those that `dot` prepared: it does so to a multiple of its own.
  TW_GPU void mend_rows(int stage, int tile) const {
    constexpr bool whole = prepared_rows % S::BM == 0;
    const int prepared = int(prepared_end(item.rows)), before = tile * S::BM;
    const int end = x.loose_rows || whole ? item.rows : prepared;
    if ((whole && !x.loose_rows) || end - before >= S::BM) return;
    if (x.loose_rows) clear_behind<S::blocks_d>(shared.q(stage), S::BM, item.rows - before);
    if constexpr (!whole)
      for (int i = prepared - before + int(threadIdx.x) - 128; i < S::BM; i += 128 * S::W)
        shared.lse(stage)[i] = INFINITY, shared.delta(stage)[i] = 0;
    fence_async_proxy();
    sync();
  }

  // The scores of a tile are under way.
  TW_GPU void scores(BackwardScores<S> &s, int stage, uint32_t phase, int tile) const {
    shared.full_q(stage).wait(phase);
    mend_rows(stage, tile);
    wgmma_fence();
    multiply_rows<S, S::D>(s, shared.k() + keys_before<S>(who) * 128, shared.q(stage) + rows_before<S>(who) * 128);
    wgmma_commit();
  }

  // Weights of a tile, dv, and the gradients of its scores: beside exponentials runs the product for these gradients, and
  // beside their accumulators that for dv.
  TW_GPU void weigh_ahead(BackwardScores<S> &s, BackwardWeights<S> &p, BackwardWeights<S> &ds, float (&dv)[S::DV / 2],
                          int tile, int head) const {
    BackwardScores<S> dp;
    BackwardKept<S> kept;
    wgmma_wait<0>();  // ptxas allows no reading of accumulators under way since the turn of the loop before
    hold(s);
    gradients(dp);
    if constexpr (S::Scored) weigh_scored(s, p, kept, tile, head);
    else weigh(s, tile), round(p, s);
    values(dv, p);
    wgmma_wait<1>();
    hold(dp);
    differentiate(dp, s, kept, tile, head);
    round(ds, dp);
  }
  // The same with fewer registers.
  TW_GPU void weigh_tightly(BackwardScores<S> &s, BackwardWeights<S> &p, BackwardWeights<S> &ds, float (&dv)[S::DV / 2],
                            int tile, int head) const {
    BackwardScores<S> dp;
    BackwardKept<S> kept;
    gradients(dp);
    wgmma_wait<1>();
    hold(s);
    if constexpr (S::Scored) weigh_scored(s, p, kept, tile, head);
    else weigh(s, tile);
    wgmma_wait<0>();
    hold(dp);
    differentiate(dp, s, kept, tile, head);
    if constexpr (!S::Scored) round(p, s);
    values(dv, p);
    round(ds, dp);
  }
  TW_GPU void gradients(BackwardScores<S> &dp) const {
    wgmma_fence();
    multiply_rows<S, S::DV>(dp, shared.v() + keys_before<S>(who) * 128,
                            shared.o(outs.stage) + rows_before<S>(who) * 128);
    wgmma_commit();
  }
  TW_GPU void values(float (&dv)[S::DV / 2], BackwardWeights<S> &p) const {
    hold(dv), hold(p);
    wgmma_fence();
    add_rows<S, S::DV>(dv, p, shared.o(outs.stage));
    wgmma_commit();
  }
  TW_GPU void round(BackwardWeights<S> &p, const BackwardScores<S> &s) const {
#pragma unroll
    for (int i = 0; i < S::SN / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) p[i][j] = pair(T{}, s[i * 8 + j * 2], s[i * 8 + j * 2 + 1]);
  }

  // With S::Ahead the scores of the next tile are under way behind it, unless it is the last: ptxas keeps no products in
  // flight over a branch behind which they may be or not.
  template <bool Last>
  TW_GPU void step(BackwardScores<S> &s, float (&dk)[S::D / 2], float (&dv)[S::DV / 2], BackwardSteps &steps) {
    const int tile = steps.tile, head = steps.head;
    BackwardWeights<S> p, ds;
    if constexpr (!S::Ahead) scores(s, rows.stage, rows.phase, tile);
    shared.full_o(outs.stage).wait(outs.phase);
    clear_outs(tile);
    if constexpr (S::Ahead) weigh_ahead(s, p, ds, dv, tile, head);
    else weigh_tightly(s, p, ds, dv, tile, head);
    if (S::DsStages == 1) sync();  // the dq before was multiplied by everybody
    store_scores(shared.scores(parity), ds);
    hold(dk), hold(ds);
    wgmma_fence();
    add_rows<S, S::D>(dk, ds, shared.q(rows.stage));
    wgmma_commit();
    fence_async_proxy();
    if constexpr (S::Crowded) {  // dq needs the registers of these weights
      wgmma_wait<1>();
      hold(dv), hold(p);
    }
    sync();
    BackwardDq<S> dq;
    wgmma_fence();
    multiply_dq<S>(dq, dq_keys(), dq_scores());
    wgmma_commit();
    if (S::DsStages > 1) parity ^= 1;
    wgmma_wait<1>();
    hold(dv), hold(p), hold(dk), hold(ds);
    give_back(shared.empty_o(outs.stage)), outs.next();
    give_back_rows(shared.empty_q(rows.stage)), rows.next();
    steps.next();
    if constexpr (S::Ahead && !Last) {
      scores(s, rows.stage, rows.phase, steps.tile);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    hold(dq);
    store_dq(dq);
  }
  TW_GPU const char *dq_keys() const { return shared.k() + (S::blocks_d == S::W ? who * S::BN * 128 : 0); }
  TW_GPU const char *dq_scores() const {
    return shared.scores(parity) + (S::blocks_d == S::W ? 0 : who * S::dq_rows * 128);
  }

  // Scores become weights.
  TW_GPU void weigh(BackwardScores<S> &s, int tile) const {
    const float *lse = shared.lse(rows.stage) + rows_before<S>(who) + threadIdx.x % 4 * 2;
    const int key = item.tile * S::BN + keys_before<S>(who), row = tile * S::BM + rows_before<S>(who);
    bool whole = key + 64 <= item.keys;
    if constexpr (S::Bounded) {
      if (x.right < backward_unbounded) whole = whole && key + 63 <= row + item.shift + x.right;
      if (x.left < backward_unbounded) whole = whole && key >= row + S::SN - 1 + item.shift - x.left;
    }
#pragma unroll
    for (int i = 0; i < S::SN / 8; ++i) {
      const float2 l = *reinterpret_cast<const float2 *>(lse + i * 8);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        s[i * 4 + h * 2] = exp2_fast(s[i * 4 + h * 2] * x.fold - l.x);
        s[i * 4 + h * 2 + 1] = exp2_fast(s[i * 4 + h * 2 + 1] * x.fold - l.y);
      }
    }
    if (!whole) hide(s, tile);
  }
  // Rows of a tile that see one of a thread's two keys, counted from the first row that the thread has.
  struct Rows {
    int begin, end;
  };
  TW_GPU Rows rows_of(int tile, int h) const {
    const int first = tile * S::BM + rows_before<S>(who) + int(threadIdx.x % 4) * 2;
    const int key =
        item.tile * S::BN + keys_before<S>(who) + int(threadIdx.x % 128) / 32 * 16 + int(threadIdx.x % 32) / 4 + h * 8;
    int begin = key < item.keys ? 0 : backward_unbounded, end = backward_unbounded;
    if constexpr (S::Bounded) {
      if (x.right < backward_unbounded) begin = max(begin, key - item.shift - x.right);
      if (x.left < backward_unbounded && !(S::Sinks && key < int(x.x.sink_keys))) end = key - item.shift + x.left + 1;
    }
    if constexpr (S::Scored) end = min(end, item.rows);  // tables have no entries of rows behind the last
    return {begin - first, end - first};
  }
  TW_GPU void hide(BackwardScores<S> &s, int tile) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto [begin, end] = rows_of(tile, h);
#pragma unroll
      for (int i = 0; i < S::SN / 4; ++i) {
        const int at = i / 2 * 8 + i % 2;
        if (at < begin || at >= end) s[i / 2 * 4 + h * 2 + i % 2] = 0;
      }
    }
  }
  TW_GPU void weigh_scored(BackwardScores<S> &s, BackwardWeights<S> &p, BackwardKept<S> &kept, int tile,
                           int head) const {
    const BackwardScored<S, Config> scored(x, item, head, tile, who);
    if constexpr (Config::dropout) scored.draw(kept);
    const Rows seen[2] = {rows_of(tile, 0), rows_of(tile, 1)};
    scored.weigh(s, p, shared.lse(rows.stage) + rows_before<S>(who) + threadIdx.x % 4 * 2, seen, kept);
  }
  TW_GPU void differentiate(BackwardScores<S> &dp, const BackwardScores<S> &s, const BackwardKept<S> &kept, int tile,
                            int head) const {
    const BackwardScored<S, Config> scored(x, item, head, tile, who);
    if constexpr (Config::dropout) scored.drop(dp, kept);
    const float *delta = shared.delta(rows.stage) + rows_before<S>(who) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::SN / 8; ++i) {
      const float2 d = *reinterpret_cast<const float2 *>(delta + i * 8);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = i * 4 + h * 2;
        dp[at] = s[at] * (dp[at] - d.x), dp[at + 1] = s[at + 1] * (dp[at + 1] - d.y);
      }
    }
    if constexpr (Config::dbias) scored.store_bias(dp);
  }
  // Transposed, so that keys lie side by side.
  TW_GPU void store_scores(char *scores, const BackwardWeights<S> &ds) const {
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x % 128) / 32;
    const int line = lane / 16 * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
    char *to = scores + who * S::SN * 128 + line * 128 + ((piece ^ line) % 8) * 16;
#pragma unroll
    for (int i = 0; i < S::SN / 16; ++i)
      store_matrices_transposed(to + i * 16 * 128, ds[i][0], ds[i][1], ds[i][2], ds[i][3]);
  }
  // Into boxes of 32 elements of all rows, as TMA swizzles them.
  TW_GPU void store_dq(const BackwardDq<S> &dq) const {
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x % 128) / 32;
    named_barrier(backward_dq_empty + who, 160);
    char *to = shared.dq(who) + warp / 2 * S::dq_rows * 128 + lane / 4 % 4 * 4;
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int line = lane % 4 * 2 + e, piece = warp % 2 * 4 + h * 2 + lane / 16;
        char *at = to + line * 128 + (piece ^ line) * 16;
#pragma unroll
        for (int j = 0; j < S::dq_rows / 8; ++j) *reinterpret_cast<float *>(at + j * 1024) = dq[j * 4 + h * 2 + e];
      }
    fence_async_proxy();
    named_arrive(backward_dq_full + who, 160);
  }
};

}  // namespace tw
#endif
