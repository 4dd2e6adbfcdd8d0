// Accumulators of one tile that are spread over blocks (stream-K, split-K) come together here, in the order of k.
#pragma once
#include <tilewright/cuda/primitives/stay.h>
#include <tilewright/cuda/gemm/tma_ws/splits.h>
#include <tilewright/gpu/split_k.h>

namespace tw {

template <class S> struct Collect {
  using Sum = SumOf<S>;
  static constexpr int tile = S::BM * S::BN, octets = S::BN / 8;
  const TmaWsArgs &x;
  const Warpgroup &me;
  const int half, piece;  // of a tile: the warpgroup's

  TW_GPU Collect(const TmaWsArgs &args, const Warpgroup &group)
      : x(args), me(group), half(S::PingPong ? 0 : group.who), piece(S::PingPong ? 0 : group.who * S::rows * S::BN) {}

  TW_GPU float4 *place(long long block, int i, int j) const {
    return reinterpret_cast<float4 *>(x.partial + block * tile + piece) + (i * octets + j) * 128 + me.thread;
  }
  TW_GPU void write_partials(const Accumulators<S> &d, long long block) const {
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < octets; ++j) {
        const Sum *v = &d[i][j * 4];
        store_through(place(block, i, j), float4{to_word(v[0]), to_word(v[1]), to_word(v[2]), to_word(v[3])});
      }
    me.sync();
  }
  TW_GPU void add_from(Accumulators<S> &d, long long block) const {
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < octets; ++j) {
        float4 v = load_through(place(block, i, j));
        Sum *to = &d[i][j * 4];
        to[0] += from_word<Sum>(v.x), to[1] += from_word<Sum>(v.y), to[2] += from_word<Sum>(v.z),
            to[3] += from_word<Sum>(v.w);
      }
  }

  // True: this warpgroup has nothing left to do for the segment.  `emit(index, total)` is given what it finished of
  // the tile.
  template <class Emit> TW_GPU bool split_k(const Accumulators<S> &d, const Segment &s, Emit emit) const {
    const int parts = x.order.parts, rank = blockIdx.x % S::Cluster;
    if (parts == 1) return false;
    const long long first = (long long)s.tile * parts * S::Cluster + rank;
    Stretch mine(S::blocks_m * octets * 128, s.part, parts);
    stay(mine.low), stay(mine.high);
    write_partials(d, first + s.part * S::Cluster);
    unsigned *words = x.flags + 2 * ((s.tile * S::Cluster + rank) * 2 + half);
    if (me.thread == 0) sync(words, parts);
    me.sync();
    add_up<128, Sum>(x.partial + first * tile + piece, S::Cluster * tile, mine, parts, me.thread, emit);
    if (me.thread == 0) tw::part(words, parts);
    return true;
  }
  // The block with a tile's first k collects from its neighbours.
  TW_GPU bool stream_k(Accumulators<S> &d, const Segment &s) const {
    if (s.k0 > 0) {
      write_partials(d, blockIdx.x);
      if (me.thread == 0) {
        __threadfence();  // for all of the warpgroup, which met
        atomicExch(&x.flags[blockIdx.x * 2 + half], 1u);
      }
      return true;
    }
    int from = blockIdx.x;
    for (int got = s.k1; got < x.order.steps; got += x.order.share) {
      from += S::Cluster;
      if (me.thread == 0) {
        unsigned *flag = &x.flags[from * 2 + half];
        while (atomicAdd(flag, 0u) == 0u) TW_SPIN();
        atomicExch(flag, 0u);  // ready for the next launch
        __threadfence();
      }
      me.sync();
      add_from(d, from);
    }
    return false;
  }
};

}  // namespace tw
