// The multistage pipeline: tiles of A and B come through a ring of stages in shared memory, copied while
// earlier ones are multiplied; any size, any alignment, every layout.
//
// Written over a thin layer of device functions: copies (copy_async, commit_copies, wait_copies), words of
// shared memory, block_barrier, and Matrix, a unit of a warp's multiplication.  cuda/copies/copies.h, cuda/primitives/mma.h
// and cuda/primitives/matrix.h are one such layer.
#pragma once
#include <tilewright/gpu/plain_copy.h>
#include <tilewright/gpu/split_k.h>
#include <tilewright/gpu/tile_copy.h>

#ifdef TW_ON_GPU
namespace tw {

template <class O, int Threads, bool plain> struct fetch_of {
  using type = Fetch<O, Threads>;
};
template <class O, int Threads> struct fetch_of<O, Threads, true> {
  using type = PlainFetch<O, Threads>;
};

// One operand on its way: the copies of stages, and for those that need it the tile realigned one k-block later.
template <class S, class O> struct Side {
  typename fetch_of<O, S::threads, O::plain>::type fetch;
  Realign<O, S::threads> realign;
  char *ring, *realigned;  // this operand's place in stage 0; two realigned tiles
  int into = 0, out_of = 0, turn = 0;
  int left;  // k-blocks to fetch

  TW_GPU Side(const void *matrix, long long stride, int lines, int deep, int line, int k, int steps, char *ring_at,
              char *realigned_at)
      : fetch(matrix, stride, lines, O::plain && deep > k + steps * O::Deep ? k + steps * O::Deep : deep, line, k),
        realign(matrix, stride),
        ring(ring_at),
        realigned(realigned_at),
        left(steps) {}

  static TW_GPU int after(int stage) { return stage == S::Stages - 1 ? 0 : stage + 1; }

  template <bool First = false> TW_GPU void copy_next() {
    if constexpr (O::plain) {
      copy_part<0, 1>();
    } else {
      if (left > 0) {
        fetch.template stage<First>(ring + into * S::stage_bytes);
        fetch.next();
      }
      --left;
      into = after(into);
    }
  }
  // Of plain floats: a part of the next stage.  Behind the last there are zeros.
  template <int Part, int Parts> TW_GPU void copy_part() {
    fetch.template part<Part, Parts>(ring + into * S::stage_bytes);
    if constexpr (Part == Parts - 1) {
      fetch.next();
      into = after(into);
    }
  }
  // A part of moving the next raw stage into the tile after this one.
  template <int Part, int Parts> TW_GPU void realign_next() {
    if constexpr (O::realigned)
      realign.template part<Part, Parts>(ring + out_of * S::stage_bytes, realigned + (turn ^ 1) * O::Place::bytes);
  }
  TW_GPU void next() {
    out_of = after(out_of);
    turn ^= 1;
  }
  // The tile to multiply.
  TW_GPU const char *tile() const {
    return O::realigned ? realigned + turn * O::Place::bytes : ring + out_of * S::stage_bytes;
  }
};

template <class S, class Config> struct MultistageBlock {
  using TileA = typename S::A::Place;
  using TileB = typename S::B::Place;
  using M = Matrix<Config, TileA, TileB>;
  using Sum = typename S::Sum;
  static constexpr int units_m = S::warp_m / M::m, units_n = S::warp_n / M::n, units_k = S::BK / M::k;
  // Realigned operands are fetched one k-block earlier than others.
  static constexpr int lead = S::A::realigned || S::B::realigned ? 1 : 0;
  static constexpr int spread = units_k > 1 ? units_k - 1 : 1;
  // Fragments one unit ahead, where no registers are needed to realign operands.
  static constexpr bool ahead = M::ahead && lead == 0;
  static_assert(units_k >= 2 || !ahead, "fragments are loaded one unit ahead");
  static_assert(M::m == Config::unit_m && S::warp_n % M::n == 0, "a warp's part is whole units");

  Sum accum[units_m][units_n][M::accum];
  int warp_row, warp_column;  // of the tile

  TW_GPU MultistageBlock() {
    const int warp = thread_index() / 32;
    warp_row = warp % Config::warps_m * S::warp_m;
    warp_column = warp / Config::warps_m * S::warp_n;
#pragma unroll
    for (int i = 0; i < units_m; ++i)
#pragma unroll
      for (int j = 0; j < units_n; ++j)
#pragma unroll
        for (int q = 0; q < M::accum; ++q) accum[i][j][q] = 0;
  }

  struct Fragments {
    uint32_t a[units_m][M::a_words], b[units_n][M::b_words];
  };

  TW_GPU void load(Fragments &f, const char *a, const char *b, int step) const {
#pragma unroll
    for (int i = 0; i < units_m; ++i) M::load_a(f.a[i], a, warp_row + i * M::m, step);
#pragma unroll
    for (int j = 0; j < units_n; ++j) M::load_b(f.b[j], b, warp_column + j * M::n, step);
  }
  TW_GPU void multiply(const Fragments &f) {
#pragma unroll
    for (int i = 0; i < units_m; ++i)
#pragma unroll
      for (int j = 0; j < units_n; ++j) M::multiply(accum[i][j], f.a[i], f.b[j]);
  }

  // What happens beside a unit of k: the next copies, a part of realigning.
  template <int Unit, class SideA, class SideB> TW_GPU void beside(SideA &a, SideB &b) {
    if constexpr (S::A::plain) {  // a few copies at a time: many would hold up the fragments behind them
      constexpr int every = units_k / 4, part = Unit / every;
      if constexpr (Unit % every == 0) {
        a.template copy_part<part, 4>();
        b.template copy_part<part, 4>();
        if constexpr (part == 3) commit_copies();
      }
    } else if constexpr (Unit == 0) {
      a.copy_next();
      b.copy_next();
      commit_copies();
    }
    if constexpr (Unit < spread) {
      a.template realign_next<Unit, spread>();
      b.template realign_next<Unit, spread>();
    }
  }
  // The units of one k-block from `Unit` on, written out: what is done beside each is known to the compiler.
  template <int Unit, class SideA, class SideB> TW_GPU void units(SideA &a, SideB &b, Fragments (&f)[ahead ? 2 : 1]) {
    if constexpr (Unit < units_k) {
      constexpr bool last = Unit == units_k - 1;
      if constexpr (ahead) {
        if constexpr (last) turn_over(a, b);
        load(f[(Unit + 1) % 2], a.tile(), b.tile(), last ? 0 : Unit + 1);
        beside<Unit>(a, b);
        multiply(f[Unit % 2]);
      } else {
        load(f[0], a.tile(), b.tile(), Unit);
        beside<Unit>(a, b);
        multiply(f[0]);
        if constexpr (last) turn_over(a, b);
      }
      units<Unit + 1>(a, b, f);
    }
  }
  // The next stage is there for all, and all are done with the one before this.
  template <class SideA, class SideB> TW_GPU void turn_over(SideA &a, SideB &b) {
    wait_copies<S::Stages - 2>();
    block_barrier();
    a.next();
    b.next();
  }

  template <class SideA, class SideB> TW_GPU void run(SideA &a, SideB &b, int steps) {
    static_assert(!ahead || units_k % 2 == 0, "a step leaves the fragments where the next one looks");
    if (S::A::realigned || lead == 0) a.template copy_next<true>();
    if (S::B::realigned || lead == 0) b.template copy_next<true>();
    commit_copies();
#pragma unroll 1
    for (int i = 1; i < S::Stages - 1 + lead; ++i) {
      a.copy_next();
      b.copy_next();
      commit_copies();
    }
    wait_copies<S::Stages - 2>();
    block_barrier();
    if constexpr (lead) {
      a.turn = b.turn = 1;
      a.template realign_next<0, 1>();
      b.template realign_next<0, 1>();
      a.turn = b.turn = 0;
      if constexpr (S::A::realigned) a.out_of = 1 % S::Stages;
      if constexpr (S::B::realigned) b.out_of = 1 % S::Stages;
      block_barrier();
    }
    Fragments f[ahead ? 2 : 1];
    if constexpr (ahead) load(f[0], a.tile(), b.tile(), 0);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) units<0>(a, b, f);
    if constexpr (S::A::plain) wait_copies<0>();  // also for those behind the last stage
    if constexpr (ahead) block_barrier();         // all have loaded: the ring is free for other use
  }

  // Through a staging buffer of accumulators, from which threads go along rows: `take(i)` for the i-th unit's rows of
  // every warp.
  template <class Take> TW_GPU void by_staging(char *shared, Take take) const {
#pragma unroll
    for (int i = 0; i < units_m; ++i) {
      if (i > 0) block_barrier();
#pragma unroll
      for (int j = 0; j < units_n; ++j)
#pragma unroll
        for (int q = 0; q < M::accum; ++q)
          store_shared(
              shared + staging(warp_row / S::warp_m * M::m + M::row(q), warp_column + j * M::n + M::column(q)) * 4,
              accum[i][j][q]);
      block_barrier();
      take(i);
    }
  }
  // `take(row, column, row of the staging buffer)` for every `Width` columns of what lies in the staging buffer.
  template <int Width, class Take> static TW_GPU void along_rows(int i, Take take) {
#pragma unroll(Finish<Config>::fused ? 1 : 2)  // what is fused takes registers, of which accumulators leave few
    for (int at = thread_index() * Width; at < S::staging_rows * S::BN; at += S::threads * Width) {
      const int r = at / S::BN, c = at % S::BN;
      take(r / M::m * S::warp_m + i * M::m + r % M::m, c, r);
    }
  }
  // What is fused reads its tensors and writes E in whole lines, 16 bytes a thread where E's rows are aligned so.
  TW_GPU void store_tile(char *shared, const MultistageArgs &x, const Segment &s) const {
    using C = typename Config::C;
    constexpr int width = sizeof(C) == 4 ? 4 : 8;
    struct alignas(16) Accumulators {
      Sum v[4];
    };
    const Finish<Config> finish(x.finish);
    const int row0 = s.m * S::BM, column0 = s.n * S::BN, z = s.z;
    C *e = static_cast<C *>(x.e) + z * x.e_batch;
    const auto wide = [&](int tile_row, int c, int r) {
      const int row = row0 + tile_row, column = column0 + c;
      const bool crossed = r >> 2 & 1;  // neighbours change places
      if (row >= x.m || column >= x.n) return;
      Sum accum[width];
#pragma unroll
      for (int q = 0; q < width; q += 4) {
        const Accumulators from = load_shared<Accumulators>(shared + ((staging(r, c) & ~1) + q) * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) accum[q + i] = crossed ? from.v[i ^ 1] : from.v[i];
      }
      finish.store(accum, x.n - column, z, row, column, e + row * x.e_stride + column);
    };
    const auto single = [&](int tile_row, int c, int r) {
      const int row = row0 + tile_row, column = column0 + c;
      if (row < x.m && column < x.n)
        e[row * x.e_stride + column] = finish(load_shared<Sum>(shared + staging(r, c) * 4), z, row, column);
    };
    const bool whole = whole_rows<width>(e, x.e_stride, 0);
    by_staging(shared, [&](int i) {
      if (whole) along_rows<width>(i, wide);
      else along_rows<1>(i, single);
    });
  }
  // Split-K: all blocks of a tile write their partial sums, wait for each other, and each finishes a part of the tile.
  TW_GPU void reduce_across_cluster(char *shared, const MultistageArgs &x, const Segment &s) const {
    using C = typename Config::C;
    const int parts = x.order.parts, tile = S::BM * S::BN;
    float *first = x.partial + (long long)s.tile * parts * tile, *mine = first + (long long)s.part * tile;
    const auto write_partials = [&](int tile_row, int c, int r) {
      float4 v;
      v.x = load_shared<float>(shared + staging(r, c) * 4), v.y = load_shared<float>(shared + staging(r, c + 1) * 4);
      v.z = load_shared<float>(shared + staging(r, c + 2) * 4),
      v.w = load_shared<float>(shared + staging(r, c + 3) * 4);
      store_through(reinterpret_cast<float4 *>(mine + tile_row * S::BN + c), v);
    };
    by_staging(shared, [&](int i) { along_rows<4>(i, write_partials); });
    block_barrier();
    unsigned *words = x.flags + 2 * s.tile;
    if (thread_index() == 0) sync(words, unsigned(parts));
    block_barrier();
    const Finish<Config> finish(x.finish);
    const int row0 = s.m * S::BM, column0 = s.n * S::BN, z = s.z;
    C *e = static_cast<C *>(x.e) + z * x.e_batch;
    add_up<S::threads>(first, tile, Stretch(tile / 4, s.part, parts), parts, thread_index(),
                       [&](int index, const float4 &total) {
                         const int row = row0 + index * 4 / S::BN, column = column0 + index * 4 % S::BN;
                         const float values[4] = {total.x, total.y, total.z, total.w};
                         if (row < x.m && column < x.n)
                           finish.store(values, x.n - column, z, row, column, e + row * x.e_stride + column);
                       });
    if (thread_index() == 0) part(words, unsigned(parts));
  }
  // Stream-K: who has a tile's later k writes its partial sums, as the threads hold them; who has its first k adds them.
  // False: nothing is left to do for the segment.
  TW_GPU bool collect(const MultistageArgs &x, const Segment &s) {
    if (s.k0 > 0) {
      each_four(x, block_index(), [](float4 *at, Sum *v) {
        store_through(at, float4{to_word(v[0]), to_word(v[1]), to_word(v[2]), to_word(v[3])});
      });
      __threadfence();
      block_barrier();
      if (thread_index() == 0) atomicExch(x.flags + block_index(), 1u);
      return false;
    }
    int from = block_index();
    for (int got = s.k1; got < x.order.steps; got += x.order.share) {
      ++from;
      if (thread_index() == 0) {
        while (atomicAdd(x.flags + from, 0u) == 0u) TW_SPIN();
        atomicExch(x.flags + from, 0u);  // ready for the next launch
        __threadfence();
      }
      block_barrier();
      each_four(x, from, [](float4 *at, Sum *v) {
        const float4 other = load_through(at);
        v[0] += from_word<Sum>(other.x), v[1] += from_word<Sum>(other.y), v[2] += from_word<Sum>(other.z),
            v[3] += from_word<Sum>(other.w);
      });
    }
    return true;
  }
  template <class Take> TW_GPU void each_four(const MultistageArgs &x, int block, Take take) {
    float4 *at = reinterpret_cast<float4 *>(x.partial + (long long)block * S::BM * S::BN) + thread_index();
#pragma unroll
    for (int i = 0; i < units_m; ++i)
#pragma unroll
      for (int j = 0; j < units_n; ++j)
#pragma unroll
        for (int q = 0; q < M::accum / 4; ++q)
          take(at + ((i * units_n + j) * (M::accum / 4) + q) * S::threads, &accum[i][j][q * 4]);
  }
  // Crossed so that neither the lanes of a unit nor those of a row meet in a bank.
  static constexpr int cross = S::BN % 32 == 0 ? 32 : 16;
  static TW_GPU int staging(int r, int c) { return r * S::BN + (c ^ r * 8 % cross ^ (r >> 2 & 1)); }
};

// One segment of the work: a tile, or a split of its k.
template <class S, class Config> TW_GPU void take_segment(const MultistageArgs &x, const Segment &s) {
  char *shared = dynamic_shared();
  auto *a = static_cast<const typename Config::A *>(x.a) + s.z * x.a_batch;
  auto *b = static_cast<const typename Config::B *>(x.b) + s.z * x.b_batch;
  char *realigned = shared + S::realigned_at;
  const int steps = s.k1 - s.k0, k = s.k0 * S::BK;
  Side<S, typename S::A> side_a(a, x.a_stride, x.m, x.k, s.m * S::BM, k, steps, shared, realigned);
  Side<S, typename S::B> side_b(b, x.b_stride, x.n, x.k, s.n * S::BN, k, steps, shared + S::A::stage_bytes,
                                realigned + S::A::realigned_bytes);
  MultistageBlock<S, Config> block;
  block.run(side_a, side_b, steps);
  if constexpr (S::Scheduler == TileScheduler::split_k) {
    if (x.order.parts > 1) return block.reduce_across_cluster(shared, x, s);
  }
  if constexpr (S::Scheduler == TileScheduler::stream_k) {
    if (!block.collect(x, s)) return;
  }
  block.store_tile(shared, x, s);
}

template <class S, class Config> TW_GPU void gemm_multistage(const MultistageArgs &x) {
  Work<S::Scheduler, false> work(x.order, block_index(), block_count());
  Segment s;
  if constexpr (S::Scheduler == TileScheduler::stream_k) {
    while (work.next(s)) {
      take_segment<S, Config>(x, s);
      block_barrier();  // results have left the memory that the next stages come into
    }
  } else if (work.next(s)) {  // as many blocks as there are tiles or splits of tiles
    take_segment<S, Config>(x, s);
  }
}

}  // namespace tw
#endif
