// Attention by the ws pipeline: warp-specialized: producer warps and consumer warpgroups, persistent.
//
// A warpgroup's scores of the next tile are multiplied while it weighs values with those of the tile before; and where
// there are several warpgroups they take turns, so that the exponentials of one run beside the products of another.
#pragma once
#include <tilewright/cuda/attention/ws/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention/producer.h>
#include <tilewright/cuda/attention/epilogue_store.h>
#include <tilewright/cuda/attention/scores.h>
#include <tilewright/cuda/primitives/wgmma_registers.h>

namespace tw {

template <class S> using Scores = float[S::BN / 2];
template <class S> using Results = float[S::DV / 2];
template <class S> using Weights = uint32_t[S::BN / 16][4];  // of 16 keys each

// 64 rows of queries times a tile of keys.
template <class S> TW_GPU void multiply_keys(Scores<S> &s, const char *q, const char *k) {
  const uint64_t at_q = operand(q), at_k = operand(k);
#pragma unroll
  for (int i = 0; i < S::D / 16; ++i)
    Wgmma<S::BN, typename S::T, 0, 0>::run(s, at_q + i / 4 * (S::BM * 128 / 16) + i % 4 * 2,
                                           at_k + i / 4 * (S::BN * 128 / 16) + i % 4 * 2, i > 0);
}
// Weights times a tile of values, on top of what was there where `add` says so.
template <class S> TW_GPU void multiply_values(Results<S> &o, Weights<S> &p, const char *v, int add) {
  const uint64_t at_v = operand(v, 1024, S::BN * 128);
#pragma unroll
  for (int i = 0; i < S::BN / 16; ++i)
    WgmmaRegisters<S::DV, typename S::T, 1>::run(o, p[i], at_v + i * (16 * 128 / 16), i > 0 ? 1 : add);
}

// An item a warpgroup works on: where it was announced, where its rows lie, how many tiles of keys it meets, and how many of
// these pass by before the first that it sees.
struct AttentionWork {
  int slot, rows, count, unseen;
  WholeTiles seen;
};

// A consumer warpgroup.
template <class S, class Config> struct Attender {
  const AttentionWsArgs &x;
  const SharedAttention<S> &shared;
  int who;
  Ring<S::Stages> keys, values;
  Ring<S::slots> slot;
  Ring<S::RowStages> rows;

  TW_GPU Attender(const AttentionWsArgs &args, const SharedAttention<S> &memory)
      : x(args), shared(memory), who(int(lane_at(threadIdx.x / 128, 0)) - 1) {}

  TW_GPU void run() {
    if (S::W > 1 && who == S::W - 1) named_arrive(1, 256);  // the first turn is the first one's
    const Dropout dropout = Config::dropout ? dropout_of(x.x) : Dropout{};
    AttentionWork work;
    bool there = take(work);
    while (there) there = traversal(work, dropout);
  }

 private:
  TW_GPU void sync() const { named_barrier(4 + who, 128); }
  TW_GPU void take_turn() const {
    if (S::W > 1) named_barrier(1 + who, 256);
  }
  TW_GPU void give_turn() const {
    if (S::W > 1) named_arrive(who == S::W - 1 ? 1 : 2 + who, 256);
  }
  TW_GPU void give_back(Barrier &empty) const {
    if (threadIdx.x % 128 == 0) empty.arrive();
  }
  TW_GPU const AttentionItem &item_of(const AttentionWork &work) const { return shared.item(work.slot); }

  // The next item, its rows there; after the last: no.
  TW_GPU bool take(AttentionWork &work) {
    shared.announced(slot.stage).wait(slot.phase);
    const AttentionItem &item = shared.item(slot.stage);  // read again where it is needed
    work.count = item.tiles.count;
    if (work.count == 0) return false;
    work.slot = slot.stage;
    slot.next();
    work.seen = wholly_seen<S>(x, item, who);
    work.unseen = unseen_tiles<S>(x, item, who);
    work.rows = rows.stage;
    if constexpr (S::Packed) carry_rows(item);
    else shared.full_q(rows.stage).wait(rows.phase), rows.next();
    return true;
  }
  TW_GPU void finish(int done, const Softmax &softmax, const Results<S> &o, const Dropout &dropout) {
    const AttentionItem &item = shared.item(done);
    if (S::StreamK && item.split) store_piece(item, softmax, o, dropout);
    else store_tile<S, Config>(x, item, rows_of_thread<S>(x, item, who), softmax, o, dropout);
    sync();
    give_back(shared.taken(done));
  }
  TW_GPU void store_piece(const AttentionItem &item, const Softmax &softmax, const Results<S> &o,
                          const Dropout &dropout) {
    if constexpr (S::StreamK) {
      const Pieces<S, Config> pieces(x, item, shared.q(0));  // its rows were multiplied
      pieces.store_tile(softmax, o, dropout);
      if (pieces.last()) pieces.combine();
    }
  }
  // What a product of keys read.
  TW_GPU void give_back_keys(const AttentionWork &work, int number) {
    give_back(shared.empty_k(keys.stage)), keys.next();
    if (number == work.count - 1 && !S::Packed) give_back(shared.empty_q(work.rows));
  }
  // Tiles that no row of this warpgroup sees, but those of others do: it gives them back, and its turns to the next.
  TW_GPU void pass(const AttentionWork &work) {
    if constexpr (S::W == 1) return;
#pragma unroll 1
    for (int i = 0; i < work.unseen; ++i) {
      shared.full_k(keys.stage).wait(keys.phase);
      give_back(shared.empty_k(keys.stage)), keys.next();
      take_turn(), give_turn();
      shared.full_v(values.stage).wait(values.phase);
      give_back(shared.empty_v(values.stage)), values.next();
    }
  }
  TW_GPU const char *rows_at(const AttentionWork &work) const { return shared.q(work.rows) + who * 64 * 128; }

  // The scores of a tile, and beside their exponentials the values of the one before.
  TW_GPU void step(const AttentionWork &now, int number, Scores<S> &s, Weights<S> &p, Results<S> &o, int add,
                   const Dropout &dropout, Softmax &softmax, float (&factor)[2]) {
    shared.full_k(keys.stage).wait(keys.phase);
    take_turn();
    hold(s), hold(o);
    wgmma_fence();
    multiply_keys<S>(s, rows_at(now), shared.k(keys.stage));
    wgmma_commit();
    shared.full_v(values.stage).wait(values.phase);
    multiply_values<S>(o, p, shared.v(values.stage), add);
    wgmma_commit();
    give_turn();
    wgmma_wait<1>();
    hold(s);
    give_back_keys(now, number);
    judge(s, now, number, dropout, softmax, factor);
    hold(s);  // exponentials before the wait, which they run beside
    wgmma_wait_behind<0>(fminf(softmax.sum[0], softmax.sum[1]));
    hold(o);
    give_back(shared.empty_v(values.stage)), values.next();
    round(p, s);
  }

  // An item, and those after it as far as they are streamed; whether there is one more, which is `now` then.
  TW_GPU bool traversal(AttentionWork &now, const Dropout &dropout) {
    Softmax softmax;
    Results<S> o;
    Scores<S> s;
    Weights<S> p;
    float factor[2];
    pass(now);
    shared.full_k(keys.stage).wait(keys.phase);
    if (S::streams) take_turn();  // as whoever comes from another item
    hold(s);
    wgmma_fence();
    multiply_keys<S>(s, rows_at(now), shared.k(keys.stage));
    wgmma_commit();
    if (S::streams) give_turn();
    wgmma_wait<0>();
    hold(s);
    give_back_keys(now, now.unseen);
    judge(s, now, now.unseen, dropout, softmax, factor);
    round(p, s);
    clear_behind(now);
    int add = 0;  // to values of tiles before
    int done = now.slot;
    bool more = false;
#pragma unroll 1
    while (true) {
#pragma unroll 1
      for (int i = now.unseen + 1; i < now.count; ++i) {
        step(now, i, s, p, o, add, dropout, softmax, factor);
        add = 1;
        if (any_lane(factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
          for (int j = 0; j < S::DV / 2; ++j) o[j] *= factor[j / 2 % 2];
        }
      }
      if (!S::streams) break;
      more = take(now);
      if (!more || now.unseen > 0) break;  // tiles that pass by would keep the values of this item waiting
      const Softmax before = softmax;
      softmax = Softmax{};
      step(now, 0, s, p, o, add, dropout, softmax, factor);
      finish(done, before, o, dropout);
      clear_behind(now);
      done = now.slot;
      add = 0;
    }
    shared.full_v(values.stage).wait(values.phase);
    hold(o);
    wgmma_fence();
    multiply_values<S>(o, p, shared.v(values.stage), add);
    wgmma_commit();
    wgmma_wait<0>();
    hold(o);
    give_back(shared.empty_v(values.stage)), values.next();
    finish(done, softmax, o, dropout);
    return S::streams ? more : take(now);
  }

  // Scores as they come from the multiplication become weights.
  TW_GPU void judge(Scores<S> &s, const AttentionWork &work, int number, const Dropout &dropout, Softmax &softmax,
                    float (&factor)[2]) const {
    const AttentionItem &item = item_of(work);
    const int tile = item.tiles.template at<S>(number), key = tile * S::BN;
    if constexpr (S::scored) add_to_scores<S, Config>(s, x, item, rows_of_thread<S>(x, item, who), key);
    else if (x.flip) negate<S>(s);
    if (tile < work.seen.low || tile >= work.seen.high) hide<S>(s, x, item, rows_of_thread<S>(x, item, who), key);
    weigh<S>(s, x.fold, softmax, factor);
    if constexpr (Config::dropout) drop<S>(s, x, item, rows_of_thread<S>(x, item, who), dropout, key);
  }
  TW_GPU void round(Weights<S> &p, const Scores<S> &s) const {
#pragma unroll
    for (int i = 0; i < S::BN / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) p[i][j] = pair(typename S::T{}, s[i * 8 + j * 2], s[i * 8 + j * 2 + 1]);
  }

  // Values behind the last key are whatever lies there: a weight of 0 does not make 0 of a NaN.
  TW_GPU void clear_behind(const AttentionWork &work) const {
    const AttentionItem &item = item_of(work);
    const int there = item.keys - item.tiles.template at<S>(0) * S::BN;
    if (!x.loose || work.unseen > 0 || there >= S::BN) return;  // the last key is in the first tile
    shared.full_v(values.stage).wait(values.phase);
    char *v = shared.v(values.stage);
    const int pieces = (S::BN - there) * 8;
#pragma unroll 1
    for (int i = int(threadIdx.x % 128); i < pieces * S::blocks_v; i += 128)
      *reinterpret_cast<uint4 *>(v + i / pieces * S::BN * 128 + there * 128 + i % pieces * 16) = uint4{0, 0, 0, 0};
    fence_async_proxy();
    sync();
  }
  // Query rows of several heads, side by side in one tile: TMA does not know such boxes.
  TW_GPU void carry_rows(const AttentionItem &item) const {
    sync();  // the rows of the item before were read by everybody
    constexpr int pieces = S::blocks_d * 8, at_once = 4;
    const int in_all = rows_in_all<S>(x, item);
#pragma unroll 1
    for (int i = int(threadIdx.x % 128); i < 64 * pieces; i += 128 * at_once) {
      uint4 value[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) value[j] = piece_of(item, i + j * 128, in_all);
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int line = who * 64 + (i + j * 128) / pieces, piece = (i + j * 128) % pieces;
        *reinterpret_cast<uint4 *>(shared.q(0) + piece / 8 * S::BM * 128 + line * 128 + ((piece ^ line) % 8) * 16) =
            value[j];
      }
    }
    fence_async_proxy();
    sync();
  }
  TW_GPU uint4 piece_of(const AttentionItem &item, int number, int in_all) const {
    constexpr int pieces = S::blocks_d * 8;
    const int row = item.tile * S::BM + who * 64 + number / pieces, piece = number % pieces;
    if (row >= in_all || piece * 8 >= x.x.head_qk) return uint4{0, 0, 0, 0};
    const tw_attention_strides &at = x.x.q_strides;
    const int position = position_of<S>(x, row);
    const int64_t head = item.head * x.group + row - position * x.group;
    return *reinterpret_cast<const uint4 *>(static_cast<const typename S::T *>(x.x.q) + item.sequence * at.batch +
                                            (item.first_row + position) * at.row + head * at.head + piece * 8);
  }
};

template <class S, class Config> TW_GPU void attention_ws(const TensorMap &map_q, const TensorMap &map_k,
                                                          const TensorMap &map_v, const AttentionWsArgs &x) {
  const SharedAttention<S> shared;
  if (threadIdx.x == 0) {
    if (!S::Packed) tma_prefetch(&map_q);
    tma_prefetch(&map_k);
    tma_prefetch(&map_v);
    shared.init();
  }
  __syncthreads();
  if constexpr (S::Split) let_next_kernel_in();  // which combines splits, as soon as there is room
  if (threadIdx.x < 128) {
    deallocate_registers<S::producer_registers>();
    if (threadIdx.x < 32) produce_attention<S>(map_q, map_k, map_v, x, shared);
  } else {
    allocate_registers<S::consumer_registers>();
    Attender<S, Config>(x, shared).run();
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_WS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionWs<Config>::threads, tw::AttentionWs<Config>::ctas_per_sm) \
      Symbol(const __grid_constant__ tw::TensorMap q, const __grid_constant__ tw::TensorMap k, \
             const __grid_constant__ tw::TensorMap v, const __grid_constant__ tw::AttentionWsArgs x) { \
    tw::attention_ws<tw::AttentionWs<Config>, Config>(q, k, v, x); \
  }
#else
#define TW_DEVICE_ATTENTION_WS(Config, Symbol)
#endif
