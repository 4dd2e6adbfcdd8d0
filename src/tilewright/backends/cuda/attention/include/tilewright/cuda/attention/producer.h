// What the producer warp of attention does: it announces the next item, and has TMA bring its rows, then keys
// and values tile by tile as stages come free.
#pragma once
#include <tilewright/cuda/attention/stream_k/kernel.h>
#include <tilewright/cuda/primitives/tma.h>

namespace tw {

// Rows of queries, stages of keys and values, from a multiple of 1024 bytes on; items that were announced; barriers.  Kept as
// one place: registers are dear.
template <class S> struct SharedAttention {
  char *base;
  TW_GPU SharedAttention() {
    char *raw = dynamic_shared();
    base = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  }
  TW_GPU char *q(int stage) const { return base + stage * S::q_bytes; }
  TW_GPU char *k(int stage) const { return q(S::RowStages) + stage * S::k_bytes; }
  TW_GPU char *v(int stage) const { return k(S::Stages) + stage * S::v_bytes; }
  TW_GPU AttentionItem &item(int slot) const { return reinterpret_cast<AttentionItem *>(v(S::Stages))[slot]; }
  TW_GPU Barrier &full_k(int stage) const { return barrier(stage); }
  TW_GPU Barrier &empty_k(int stage) const { return barrier(S::Stages + stage); }
  TW_GPU Barrier &full_v(int stage) const { return barrier(2 * S::Stages + stage); }
  TW_GPU Barrier &empty_v(int stage) const { return barrier(3 * S::Stages + stage); }
  TW_GPU Barrier &announced(int slot) const { return barrier(4 * S::Stages + slot); }
  TW_GPU Barrier &taken(int slot) const { return barrier(4 * S::Stages + S::slots + slot); }
  TW_GPU Barrier &full_q(int stage) const { return barrier(4 * S::Stages + 2 * S::slots + stage); }
  TW_GPU Barrier &empty_q(int stage) const { return full_q(S::RowStages + stage); }

  TW_GPU void init() const {
    for (int i = 0; i < S::Stages; ++i) {
      full_k(i).init(1), full_v(i).init(1);
      empty_k(i).init(S::W), empty_v(i).init(S::W);
    }
    for (int i = 0; i < S::slots; ++i) announced(i).init(1), taken(i).init(S::W);
    for (int i = 0; i < S::RowStages; ++i) full_q(i).init(1), empty_q(i).init(S::W);
    fence_barriers();
  }

 private:
  TW_GPU Barrier &barrier(int number) const { return reinterpret_cast<Barrier *>(&item(S::slots))[number]; }
};

template <class S>
TW_GPU void announce(const SharedAttention<S> &shared, Ring<S::slots> &slot, const AttentionItem &item) {
  shared.taken(slot.stage).wait(slot.phase ^ 1);
  if (threadIdx.x % 32 == 0) {
    shared.item(slot.stage) = item;
    shared.announced(slot.stage).arrive();
  }
  slot.next();
}

// Rows, and tiles of keys and values; the whole warp comes along.
template <class S> struct TileProducer {
  const TensorMap &map_q, &map_k, &map_v;
  const AttentionWsArgs &x;
  const SharedAttention<S> &shared;
  Ring<S::Stages> ring;
  Ring<S::RowStages> rows;

  // The first keys before the rows: these wait longer for their place.
  TW_GPU void produce(const AttentionItem &item) {
    const int head = S::Packed ? item.head : x.by_group.quotient(item.head);
#pragma unroll 1  // copies of this are as much code again as the products: it compiles slowly
    for (int i = 0; i < item.tiles.count; ++i, ring.next()) {
      const int key = item.tiles.template at<S>(i) * S::BN;
      const int first = page_at(item, key + int(threadIdx.x % 32) * x.page_rows);  // beside the wait
      shared.empty_k(ring.stage).wait(ring.phase ^ 1);
      bring<S::blocks_d>(map_k, &shared.full_k(ring.stage), shared.k(ring.stage), S::k_bytes, item, key, head, first);
      if (i == 0 && !S::Packed) bring_rows(item);
      shared.empty_v(ring.stage).wait(ring.phase ^ 1);
      bring<S::blocks_v>(map_v, &shared.full_v(ring.stage), shared.v(ring.stage), S::v_bytes, item, key, head, first);
    }
    __syncwarp();
  }

 private:
  // The page of a key; those behind the last are in one that does not exist, which is zeros.
  TW_GPU int page_at(const AttentionItem &item, int key) const {
    if constexpr (!S::Paged) return 0;
    if (key >= item.keys) return int(x.x.pages.count);
    return int(page_of(x.x.pages, item.sequence, key / int(x.x.pages.size)));
  }
  template <int Blocks> TW_GPU void bring(const TensorMap &map, Barrier *full, char *to, int bytes,
                                          const AttentionItem &item, int key, int head, int page) const {
    const int lane = int(threadIdx.x % 32);
    if (lane == 0) full->expect(bytes);
    if constexpr (S::Paged) {
      __syncwarp();
      // Boxes divide pages and tiles.
      for (int at = lane * x.page_rows; at < S::BN; at += 32 * x.page_rows) {
        if (at >= 32 * x.page_rows) page = page_at(item, key + at);
#pragma unroll
        for (int j = 0; j < Blocks; ++j)
          tma_load_rows(&map, full, to + j * S::BN * 128 + at * 128, j * 64, (key + at) % int(x.x.pages.size), head,
                        page);
      }
    } else if (lane == 0) {
      const int z = x.x.starts_k ? 0 : item.sequence;
#pragma unroll
      for (int j = 0; j < Blocks; ++j)
        tma_load_rows(&map, full, to + j * S::BN * 128, j * 64, item.first_key + key, head, z);
    }
  }
  TW_GPU void bring_rows(const AttentionItem &item) {
    if (threadIdx.x % 32 == 0) {
      Barrier &full = shared.full_q(rows.stage);
      shared.empty_q(rows.stage).wait(rows.phase ^ 1);
      full.expect(S::q_bytes);
#pragma unroll
      for (int j = 0; j < S::blocks_d; ++j)
        tma_load_rows(&map_q, &full, shared.q(rows.stage) + j * S::BM * 128, j * 64, item.first_row + item.tile * S::BM,
                      item.head, x.x.starts_q ? 0 : item.sequence);
    }
    rows.next();
  }
};

template <class S, bool StreamK> struct OrderOf {
  using type = AttentionOrder<S>;
};
template <class S> struct OrderOf<S, true> {
  using type = ShareOrder<S>;
};

template <class S> TW_GPU void produce_attention(const TensorMap &map_q, const TensorMap &map_k, const TensorMap &map_v,
                                                 const AttentionWsArgs &x, const SharedAttention<S> &shared) {
  typename OrderOf<S, S::StreamK>::type order(x);
  TileProducer<S> tiles{map_q, map_k, map_v, x, shared, {}, {}};
  Ring<S::slots> slot;
  AttentionItem item;
  bool more = true;
  while (more) {
    more = order.next(item);
    if (!more) item.tiles.count = 0;
    else if constexpr (!S::StreamK) find_tiles<S>(x, item);
    announce<S>(shared, slot, item);
    if (more) tiles.produce(item);
  }
  order.end();
}

}  // namespace tw
