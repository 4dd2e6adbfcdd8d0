// Attention by the mla pipeline: a producer warp, a warpgroup that scores, and two that add up values.
#pragma once
#include <tilewright/cuda/attention/mla/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention/tma_boxes.h>
#include <tilewright/cuda/attention/epilogue_store.h>
#include <tilewright/cuda/attention/warp_roles.h>
#include <tilewright/cuda/attention/scores.h>
#include <tilewright/cuda/primitives/wgmma_registers.h>

namespace tw {

// Rows of queries, tiles, weights, from a multiple of 1024 bytes on; factors of rows; barriers.
template <class S> struct SharedMla {
  char *base = shared_tiles();
  TW_GPU char *q() const { return base; }
  TW_GPU char *tile(int stage) const { return base + S::q_bytes + stage * S::tile_bytes; }
  TW_GPU char *p() const { return tile(S::Stages); }
  TW_GPU float *factors() const { return reinterpret_cast<float *>(p() + S::p_bytes); }  // of results so far
  TW_GPU float *over_accum() const { return factors() + S::BM; }                         // of results at the end
  TW_GPU Barrier &full(int stage) const { return reinterpret_cast<Barrier *>(over_accum() + S::BM)[stage]; }
  TW_GPU Barrier &empty(int stage) const { return (&full(0))[S::Stages + stage]; }

  TW_GPU void init() const {
    for (int i = 0; i < S::Stages; ++i) full(i).init(1), empty(i).init(S::W);
    fence_barriers();
  }
};

// The producer warp: tiles as they come free; keys and values in turn where these lie apart.
template <class S> struct MlaProducer {
  const TensorMap &map_k, &map_v;
  const AttentionMlaArgs &x;
  const SharedMla<S> &shared;

  TW_GPU void run() const {
    AttentionOrder<S> order(x.ws);
    AttentionItem item;
    Ring<S::Stages> ring;
    while (order.next(item)) {
      const KeyTiles tiles = tiles_of<S>(x.ws, item);
      for (int i = 0; i < tiles.count; ++i) {
        const int key = tiles.template at<S>(i) * S::BN;
        shared.empty(ring.stage).wait(ring.phase ^ 1);
        bring_tile<S, S::blocks_d, S::line>(x.ws, map_k, shared.full(ring.stage), shared.tile(ring.stage), item, key,
                                            item.head);
        ring.next();
        if (!x.values_in_keys) {
          shared.empty(ring.stage).wait(ring.phase ^ 1);
          bring_tile<S, S::blocks_v, S::line>(x.ws, map_v, shared.full(ring.stage), shared.tile(ring.stage), item, key,
                                              item.head);
          ring.next();
        }
      }
      __syncwarp();
    }
  }
};

// A consumer warpgroup, with half of the columns.
template <class S, class Config> struct MlaAttender {
  using Half = AttentionMlaHalf<S>;
  using Scores = float[S::BN / 2];
  using Results = float[Half::DV / 2];
  using Weights = uint32_t[S::BN / 16][4];
  enum : int { weights_there = 1, weights_read = 2, rows_there = 3, scoring = 4 };  // barriers
  const AttentionMlaArgs &x;
  const SharedMla<S> &shared;
  int who;
  Ring<S::Stages> ring;

  TW_GPU MlaAttender(const AttentionMlaArgs &args, const SharedMla<S> &memory)
      : x(args), shared(memory), who(consumer_warpgroup()) {}

  TW_GPU void run() {
    const Dropout dropout = Config::dropout ? dropout_of(x.ws.x) : Dropout{};
    AttentionOrder<S> order(x.ws);
    AttentionItem item;
    while (order.next(item)) {
      const KeyTiles tiles = tiles_of<S>(x.ws, item);
      if (tiles.count > 0) carry_rows(item);
      Results o;
#pragma unroll
      for (int i = 0; i < Half::DV / 2; ++i) o[i] = 0;
      if (who == 0) score(item, tiles, dropout, o);
      else follow(item, tiles, o);
    }
  }

 private:
  TW_GPU int row() const { return int(threadIdx.x % 128) / 32 * 16 + int(threadIdx.x % 32) / 4; }

  // Scores, their weights, and the first half of the columns.
  TW_GPU void score(const AttentionItem &item, const KeyTiles &tiles, const Dropout &dropout, Results &o) {
    const WholeTiles seen = wholly_seen<S>(x.ws, item, 0);
    Softmax softmax;
#pragma unroll 1
    for (int i = 0; i < tiles.count; ++i) {
      Scores s;
      Weights p;
      float factor[2];
      shared.full(ring.stage).wait(ring.phase);
      if (i == 0 && x.values_in_keys) clear_behind(item, tiles, S::blocks_d);
      hold(s);
      wgmma_fence();
      multiply_keys(s);
      wgmma_commit();
      wgmma_wait<0>();
      hold(s);
      if (!x.values_in_keys) {  // the other warpgroup does not look at keys
        if (threadIdx.x % 128 < 64 && threadIdx.x % 32 == 0) shared.empty(ring.stage).arrive();
        ring.next();
      }
      judge(s, item, tiles.template at<S>(i), seen, dropout, softmax, factor);
      round(p, s);
      if (i > 0) named_barrier(weights_read, 256);
      share_weights(p, factor);
      scale_rows(o, factor);
      if (!x.values_in_keys) {
        shared.full(ring.stage).wait(ring.phase);
        if (i == 0) clear_behind(item, tiles, S::blocks_v);
      }
      fence_async_proxy();
      named_arrive(weights_there, 256);
      hold(o);
      wgmma_fence();
      multiply_values(o, p);
      wgmma_commit();
      wgmma_wait<0>();
      hold(o);
      give_back(shared.empty(ring.stage)), ring.next();
    }
    finish(item, tiles, softmax, dropout, o);
  }
  // The second half of the columns, under weights as they come.
  TW_GPU void follow(const AttentionItem &item, const KeyTiles &tiles, Results &o) {
#pragma unroll 1
    for (int i = 0; i < tiles.count; ++i) {
      if (!x.values_in_keys) ring.next();
      named_barrier(weights_there, 256);
      const float factor[2] = {shared.factors()[row()], shared.factors()[row() + 8]};
      scale_rows(o, factor);
      shared.full(ring.stage).wait(ring.phase);
      hold(o);
      wgmma_fence();
      multiply_values(o);
      wgmma_commit();
      wgmma_wait<0>();
      hold(o);
      named_arrive(weights_read, 256);
      give_back(shared.empty(ring.stage)), ring.next();
    }
    named_barrier(weights_there, 256);
    const ThreadRows rows = rows_of_thread<S>(x.ws, item, 0);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      store_out_row<Half>(o, r, shared.over_accum()[row() + r * 8], place_of_row<S>(x.ws, item, rows, r, Half::DV),
                          int(x.ws.x.head_v) - Half::DV);
    named_arrive(weights_read, 256);
  }
  TW_GPU void finish(const AttentionItem &item, const KeyTiles &tiles, const Softmax &softmax, const Dropout &dropout,
                     const Results &o) {
    const ThreadRows rows = rows_of_thread<S>(x.ws, item, 0);
    if (tiles.count > 0) named_barrier(weights_read, 256);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor[r] = finish_row<S, Config>(x.ws, item, rows, softmax, r, dropout);
      if (threadIdx.x % 4 == 0) shared.over_accum()[row() + r * 8] = factor[r];
    }
    named_arrive(weights_there, 256);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      store_out_row<Half>(o, r, factor[r], place_of_row<S>(x.ws, item, rows, r, 0), int(x.ws.x.head_v));
    named_barrier(weights_read, 256);  // nobody's factors are written over
  }

  TW_GPU void multiply_keys(Scores &s) const {
    const uint64_t at_q = operand(shared.q()), at_k = operand(shared.tile(ring.stage));
#pragma unroll
    for (int i = 0; i < S::D / 16; ++i)
      Wgmma<S::BN, typename S::T, 0, 0>::run(s, at_q + i / 4 * (S::BM * 128 / 16) + i % 4 * 2,
                                             at_k + i / 4 * (S::BN * 128 / 16) + i % 4 * 2, i > 0);
  }
  TW_GPU uint64_t values() const {
    return operand(shared.tile(ring.stage) + who * (S::blocks_v / 2) * S::BN * 128, 1024, S::BN * 128);
  }
  TW_GPU void multiply_values(Results &o, Weights &p) const {
    const uint64_t at_v = values();
#pragma unroll
    for (int i = 0; i < S::BN / 16; ++i)
      WgmmaRegisters<Half::DV, typename S::T, 1>::run(o, p[i], at_v + i * (16 * 128 / 16), 1);
  }
  TW_GPU void multiply_values(Results &o) const {
    const uint64_t at_p = operand(shared.p()), at_v = values();
#pragma unroll
    for (int i = 0; i < S::BN / 16; ++i)
      Wgmma<Half::DV, typename S::T, 0, 1>::run(o, at_p + i / 4 * (S::BM * 128 / 16) + i % 4 * 2,
                                                at_v + i * (16 * 128 / 16), 1);
  }

  TW_GPU void judge(Scores &s, const AttentionItem &item, int tile, const WholeTiles &seen, const Dropout &dropout,
                    Softmax &softmax, float (&factor)[2]) const {
    const int key = tile * S::BN;
    if constexpr (S::scored) add_to_scores<S, Config>(s, x.ws, item, rows_of_thread<S>(x.ws, item, 0), key);
    else if (x.ws.flip) negate<S>(s);
    if (tile < seen.low || tile >= seen.high) hide<S>(s, x.ws, item, rows_of_thread<S>(x.ws, item, 0), key);
    weigh<S>(s, x.ws.fold, softmax, factor);
    if constexpr (Config::dropout) drop<S>(s, x.ws, item, rows_of_thread<S>(x.ws, item, 0), dropout, key);
  }
  TW_GPU void round(Weights &p, const Scores &s) const {
#pragma unroll
    for (int i = 0; i < S::BN / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) p[i][j] = pair(typename S::T{}, s[i * 8 + j * 2], s[i * 8 + j * 2 + 1]);
  }
  // Weights of 16 rows and 16 keys are four matrices, as stmatrix takes them: rows, rows 8 below, then 8 keys on.
  TW_GPU void share_weights(const Weights &p, const float (&factor)[2]) const {
    const int lane = int(threadIdx.x % 32), line = int(threadIdx.x % 128) / 32 * 16 + lane % 16;
    char *to = shared.p() + line * 128;
#pragma unroll
    for (int i = 0; i < S::BN / 16; ++i) {
      const int piece = i % 4 * 2 + lane / 16;
      store_matrices(to + i / 4 * (S::BM * 128) + (piece ^ line % 8) * 16, p[i][0], p[i][1], p[i][2], p[i][3]);
    }
    if (lane % 4 == 0) shared.factors()[row()] = factor[0], shared.factors()[row() + 8] = factor[1];
  }

  // Values behind the last key are whatever lies there: a weight of 0 does not make 0 of a NaN.
  TW_GPU void clear_behind(const AttentionItem &item, const KeyTiles &tiles, int blocks) const {
    const int there = item.keys - tiles.template at<S>(0) * S::BN;
    if (!x.ws.loose || there >= S::BN) return;
    char *tile = shared.tile(ring.stage);
    const int pieces = (S::BN - there) * 8;
    for (int i = int(threadIdx.x % 128); i < pieces * blocks; i += 128)
      *reinterpret_cast<uint4 *>(tile + i / pieces * S::BN * 128 + there * 128 + i % pieces * 16) = uint4{0, 0, 0, 0};
    fence_async_proxy();
    named_barrier(scoring, 128);
  }
  // Query rows of several heads, side by side in one tile; both warpgroups carry.
  TW_GPU void carry_rows(const AttentionItem &item) const {
    carry_packed_rows<S, 128 * S::W>(x.ws, item, shared.q(), int(threadIdx.x) - 128);
    fence_async_proxy();
    named_barrier(rows_there, 256);
  }
};

template <class S, class Config>
TW_GPU void attention_mla(const TensorMap &map_k, const TensorMap &map_v, const AttentionMlaArgs &x) {
  const SharedMla<S> shared;
  enter<S>(shared, map_k, map_v);
  if (threadIdx.x < 128) {
    deallocate_registers<S::producer_registers>();
    if (threadIdx.x < 32) MlaProducer<S>{map_k, map_v, x, shared}.run();
  } else {
    allocate_registers<S::consumer_registers>();
    MlaAttender<S, Config>(x, shared).run();
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_MLA(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionMla<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap k, const __grid_constant__ tw::TensorMap v, \
             const __grid_constant__ tw::AttentionMlaArgs x) { \
    tw::attention_mla<tw::AttentionMla<Config>, Config>(k, v, x); \
  }
#else
#define TW_DEVICE_ATTENTION_MLA(Config, Symbol)
#endif
