// The epilogue store of a consumer warpgroup of a tma_ws kernel: by TMA, straight from
// the registers, or through a staging buffer in shared memory; and where a tile is shared by blocks, through the split
// reduction first.
#pragma once
#include <tilewright/cuda/primitives/stay.h>
#include <tilewright/cuda/primitives/tma.h>
#include <tilewright/cuda/gemm/tma_ws/split_k_reduce.h>
#include <tilewright/cuda/gemm/tma_ws/fused_operands.h>

namespace tw {

// Through buffers TMA empties, `batch` of them at a time.  With swap_ab a buffer has 64 columns of some rows of E;
// then nothing is fused but alpha and an activation.
template <class S, class Config> struct TmaEpilogueStore {
  using Out = typename Config::C;
  static constexpr int across = S::BN / S::chunk_columns;
  // Slots the last round of a tile filled: they are the newest when the next tile begins.
  static constexpr int rounds = (S::needed + S::batch - 1) / S::batch;
  static constexpr int rest = rounds % S::slots, left = rest ? rest - 1 : 0;
  static_assert(!S::SwapAB || Config::num_d == 0, "tensors that are fused come as rows lie");

  const TensorMap &map_e, &map_d;
  const TmaWsArgs &x;
  const Warpgroup &me;
  Barrier *boxes;       // this warpgroup's
  char *buffers;        // and these too
  uint32_t phases = 0;  // of the barriers, a bit each
  Fuse<S, Config> fuse;

  TW_GPU TmaEpilogueStore(const TensorMap &map, const TensorMap &aux, const TmaWsArgs &args, const Warpgroup &group,
                          const SharedMemory<S> &shared)
      : map_e(map),
        map_d(aux),
        x(args),
        me(group),
        boxes(shared.boxes + group.who * S::slots),
        buffers(shared.out + group.who * S::buffers * S::chunk),
        fuse(args, group) {}

  // While a tile is multiplied: what is fused with it comes.
  TW_GPU void begin(const Part<Out> &p) {
    if (S::SwapAB || Fuse<S, Config>::always_simple) return;
    fuse.begin(p);
    if (!x.boxes || me.thread != 0) return;
    tma_wait_read<0>();  // of what the buffers held before
#pragma unroll
    for (int first = 0; first < S::needed; first += S::batch)
      if (first < S::slots * S::batch) fetch(p, first);
      else tma_prefetch_box(&map_d, column(p, first), row(p, first), p.z * x.every_box);
  }
  TW_GPU void operator()(Accumulators<S> &d, const Part<Out> &p) {
    // Accumulators to which only a bias is added have code of their own, and in this order it comes first in memory: what
    // they would jump over has to be fetched too.
    if constexpr (!S::SwapAB && !Fuse<S, Config>::always_simple)
      if (__builtin_expect(!fuse.simple(), 0)) return store_tile<false>(d, p);
    store_tile<Fuse<S, Config>::has_simple>(d, p);
  }

 private:
  template <bool Simple> TW_GPU void store_tile(Accumulators<S> &d, const Part<Out> &p) {
    const bool boxes_come = !Simple && x.boxes;
#pragma unroll
    for (int first = 0; first < S::needed; first += S::batch) {
      const int slot = first / S::batch % S::slots;
      char *here = buffers + slot * S::batch * S::chunk;
      if (!boxes_come && me.thread == 0) {  // of what these buffers held before
        if (first / S::batch < rest) tma_wait_read<left>();
        else tma_wait_read<S::slots - 1>();
      }
      // Also where boxes come, which need it not: with this barrier in one of two branches kernels hung on an H200
      // (CUDA 13.0), although all threads take the same one.
      me.sync();
      if (boxes_come) {
        boxes[slot].wait(phases >> slot & 1);
        phases ^= 1u << slot;
      }
#pragma unroll
      for (int g = 0; g < S::batch && first + g < S::needed; ++g) {
        float (&accum)[S::BN / 2] = d[(first + g) / across];
        const int c = (first + g) % across * S::chunk_columns;
        if constexpr (Simple) fuse.simply(accum, c);
        else fuse(accum, (first + g) / across, c, p, here + g * S::chunk);
        fill(here + g * S::chunk, accum, c);
      }
      fence_async_proxy();
      me.sync();
      if (me.thread == 0) {
#pragma unroll
        for (int g = 0; g < S::batch && first + g < S::needed; ++g) {
          if constexpr (S::SwapAB) {
            tma_store(&map_e, here + g * S::chunk, row(p, first + g), column(p, first + g), p.z);
          } else {
            const auto corner = S::corner(x, column(p, first + g), p.z);
            tma_store(&map_e, here + g * S::chunk, corner.column, row(p, first + g), corner.z);
          }
        }
        tma_commit();
        if (first + S::slots * S::batch < S::needed && boxes_come) {
          tma_wait_read<0>();
          fetch(p, first + S::slots * S::batch);
        }
      }
    }
  }

  static TW_GPU int row(const Part<Out> &p, int number) { return p.row + number / across * 64; }
  static TW_GPU int column(const Part<Out> &p, int number) { return p.column + number % across * S::chunk_columns; }
  // The boxes for the `batch` buffers from `first` on, one thread.
  TW_GPU void fetch(const Part<Out> &p, int first) const {
    const int slot = first / S::batch % S::slots;
    boxes[slot].expect(S::batch * S::chunk);
#pragma unroll
    for (int g = 0; g < S::batch; ++g)
      tma_load(&map_d, &boxes[slot], buffers + (slot * S::batch + g) * S::chunk, column(p, first + g),
               row(p, first + g), p.z * x.every_box);
  }
  // A buffer with the results of 64 rows from `column` on.
  TW_GPU void fill(char *buffer, const float (&d)[S::BN / 2], int column) const {
    if constexpr (S::SwapAB) {
      fill_transposed(buffer, d, column);
    } else {
#pragma unroll
      for (int j = 0; j < S::chunk_columns / 8; j += 2) {
        const float *v = &d[(column / 8 + j) * 4];
        store_matrices(Buffer<S>::at(buffer, me, j), results<Config>(v[0], v[1]), results<Config>(v[2], v[3]),
                       results<Config>(v[4], v[5]), results<Config>(v[6], v[7]));
      }
    }
  }
  // The same, a row of the buffer for each column: 128 bytes, their 16-byte pieces swizzled.  Lanes 8i to 8i + 7 say where
  // the columns of matrix i go: upper and lower eight rows of eight columns, then of the next eight, or of the same again.
  TW_GPU void fill_transposed(char *buffer, const float (&d)[S::BN / 2], int column) const {
    constexpr int step = S::chunk_columns == 8 ? 1 : 2;
    const int line = me.lane % 8 + (step == 2 ? me.lane / 16 * 8 : 0), piece = me.warp * 2 + me.lane / 8 % 2;
    char *to = buffer + line * 128 + ((piece ^ line % 8) << 4);
#pragma unroll
    for (int j = 0; j < S::chunk_columns / 8; j += step) {
      const float *v = &d[(column / 8 + j) * 4], *next = v + (step - 1) * 4;
      store_matrices_transposed(to + j * 1024, results<Config>(v[0], v[1]), results<Config>(v[2], v[3]),
                                results<Config>(next[0], next[1]), results<Config>(next[2], next[3]));
    }
  }
};

// By ordinary stores, of any type to any place.
template <class S, class Config> struct DirectEpilogueStore {
  using Out = typename Config::C;
  using Sum = SumOf<S>;
  // Such tiles go straight from the registers: a staging buffer's barriers take longer.
  static constexpr bool small = S::blocks_m == 1 && S::BN <= 64 && !S::SwapAB;
  // Plain results of two bytes have ways of few instructions: a short problem waits for each to come from memory.
  static constexpr bool short_ways = !Finish<Config>::fused && sizeof(Out) == 2 && !S::SwapAB;
  // Neighbours of a row of E that a thread takes from the staging buffer at a time.
  static constexpr int width = sizeof(Out) == 4 || S::SwapAB ? 4 : 8;

  const TmaWsArgs &x;
  const Warpgroup &me;
  const Finish<Config> finish;
  Sum *staging;  // this warpgroup's
  // Found while the first stage is multiplied, for results that go straight from the registers: which way (0: words lie
  // whole, 1: anywhere, 2: none of these), and of small tiles where a thread's two rows begin in E.
  int way = 2;
  long long upper = -1, lower = -1;

  TW_GPU DirectEpilogueStore(const TensorMap &, const TensorMap &, const TmaWsArgs &args, const Warpgroup &group,
                             const SharedMemory<S> &shared)
      : x(args),
        me(group),
        finish(args.finish),
        staging(reinterpret_cast<Sum *>(shared.out + group.who * S::buffers * S::chunk)) {}

  TW_GPU void begin(const Part<Out> &p) {
    if constexpr (short_ways) {
      const auto *e = static_cast<const Out *>(x.e);
      const bool rows = small ? x.n % 2 == 0 && whole_rows<2>(e, x.e_stride, x.e_batch_stride)
                              : whole_rows<width>(e, x.e_stride, x.e_batch_stride);
      way = finish.beta != 0 ? 2 : !rows;
      stay(way);
    }
    if constexpr (short_ways && small) {
      const int row = p.row + me.warp * 16 + me.lane / 4;
      upper = S::row_at(x, p.z, row), lower = S::row_at(x, p.z, row + 8);
      stay(upper), stay(lower);
    }
  }
  TW_GPU void operator()(const Accumulators<S> &d, const Part<Out> &p) const {
    if constexpr (short_ways) {  // in this order the short ones come first in memory
      if (way == 2) return any(d, p);
      if (way == 1) return pairs_anywhere(d, p);
      if constexpr (small) return pairs(d, p);
    }
    any(d, p);
  }
  // Neighbours of a row of the problem, from (row, column) of the kernel on.
  template <int Count> TW_GPU void store(const Sum (&accum)[Count], const Part<Out> &p, int row, int column) const {
    const int r = S::SwapAB ? column : row, c = S::SwapAB ? row : column, there = (S::SwapAB ? x.m : x.n) - c;
    const long long at = S::row_at(x, p.z, r), along = S::ragged ? S::column_at(x, c) : c;
    if (at >= 0 && there > 0 && (!S::ragged || along >= 0)) finish.store(accum, there, p.z, r, c, p.e + at + along);
  }

 private:
  TW_GPU void any(const Accumulators<S> &d, const Part<Out> &p) const {
    if constexpr (small) from_registers(d, p);
    else through_staging(d, p);
  }
  TW_GPU void from_registers(const Accumulators<S> &d, const Part<Out> &p) const {
#pragma unroll
    for (int j = 0; j < S::BN / 4; ++j) {
      const Sum accum[2] = {d[0][j * 2], d[0][j * 2 + 1]};
      store(accum, p, p.row + me.warp * 16 + j % 2 * 8 + me.lane / 4, p.column + j / 2 * 8 + me.lane % 4 * 2);
    }
  }
  // Nothing but alpha, and pairs of a row that lie whole.
  TW_GPU void pairs(const Accumulators<S> &d, const Part<Out> &p) const {
    const int column = p.column + me.lane % 4 * 2;
    const float alpha = finish.alpha;
    Out *to = p.e + column;
#pragma unroll
    for (int j = 0; j < S::BN / 8; ++j) {
      const Sum *v = &d[0][j * 4];
      const long long along = S::ragged ? S::column_at(x, column + j * 8) - column : j * 8;
      const bool inside = column + j * 8 < x.n && (!S::ragged || along + column >= 0);
      if (inside && upper >= 0)
        *reinterpret_cast<uint32_t *>(to + upper + along) = pair(Out{}, alpha * float(v[0]), alpha * float(v[1]));
      if (inside && lower >= 0)
        *reinterpret_cast<uint32_t *>(to + lower + along) = pair(Out{}, alpha * float(v[2]), alpha * float(v[3]));
    }
  }
  // The same of rows that begin between words: the words of such a row have a thread's right column and the left one of
  // the next thread's, or of the next eight columns' first.
  TW_GPU void pairs_anywhere(const Accumulators<S> &d, const Part<Out> &p) const {
    const int quarter = me.lane % 4, next_lane = (me.lane & ~3) | ((me.lane + 1) & 3);
    const float alpha = finish.alpha;
#pragma unroll
    for (int part = 0; part < S::blocks_m * 2; ++part) {  // 64 rows, of which a thread has one of each 8 of 16
      const Sum *v = &d[part / 2][part % 2 * 2];
      const long long at = S::row_at(x, p.z, p.row + part / 2 * 64 + me.warp * 16 + part % 2 * 8 + me.lane / 4);
      const int column = p.column + quarter * 2, end = at < 0 ? 0 : min(x.n, p.column + S::BN);
      Out *to = p.e + at + column;
      const int between = int(reinterpret_cast<uintptr_t>(to) / sizeof(Out) & 1);
      uint32_t word = pair(Out{}, alpha * float(v[0]), alpha * float(v[1]));
      if (between && quarter == 0 && column < end) *reinterpret_cast<uint16_t *>(to) = uint16_t(word);
#pragma unroll
      for (int j = 0; j < S::BN / 8; ++j) {
        const uint32_t following =
            j + 1 < S::BN / 8 ? pair(Out{}, alpha * float(v[j * 4 + 4]), alpha * float(v[j * 4 + 5])) : 0;
        const uint32_t right = lane_at(quarter == 0 ? following : word, next_lane);
        const uint32_t whole = between ? word >> 16 | right << 16 : word;
        const int there = end - column - j * 8 - between;
        if (there > 1) *reinterpret_cast<uint32_t *>(to + j * 8 + between) = whole;
        else if (there == 1) *reinterpret_cast<uint16_t *>(to + j * 8 + between) = uint16_t(whole);
        word = following;
      }
    }
  }
  // Through one staging buffer of accumulators (its columns swizzled over the banks), from which threads go along
  // rows: what is fused reads its tensors and writes E in whole lines, whatever their alignment.
  TW_GPU void through_staging(const Accumulators<S> &d, const Part<Out> &p) const {
    const bool whole = whole_rows<width>(static_cast<const Out *>(x.e), x.e_stride, x.e_batch_stride);
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int c = 0; c < S::BN; c += S::chunk_columns) {
        me.sync();
        lay_out(d[i], c);
        me.sync();
        if (whole) take<width>(p, p.row + i * 64, p.column + c);
        else take_between<4>(p, p.row + i * 64, p.column + c);
      }
  }
  static constexpr int length = S::SwapAB ? 64 : S::chunk_columns, lines = 64 * S::chunk_columns / length;  // of E
  // Where the sum of an element of E lies: eight of a line stay together, and the lanes that write, and those that
  // read, meet in few banks.
  static TW_GPU int place(int line, int at) {
    return line * length + (at ^ (S::SwapAB ? line / 2 % 4 * 8 : line * 8 % length));
  }
  // What is in the staging buffer, Count neighbours of a row of E a thread: its threads' words lie side by side.
  template <int Count> TW_GPU void take(const Part<Out> &p, int row, int column) const {
    constexpr int along = length / Count;              // threads of a row of E
#pragma unroll(S::blocks_m *S::BN / 2 >= 144 ? 1 : 2)  // beside so many accumulators no register is left for a second
    for (int at = me.thread; at < lines * along; at += 128) {
      const int first = at % along * Count, line = at / along;
      Sum accum[Count];
#pragma unroll
      for (int n = 0; n < Count; n += 4) {
        const auto four = *reinterpret_cast<const Some<Sum, 4> *>(staging + place(line, first + n));
#pragma unroll
        for (int i = 0; i < 4; ++i) accum[n + i] = four.v[i];
      }
      put(accum, p, row, column, line, first);
    }
  }
  // The same of rows that begin between: words are cut where they begin in memory, and the ends go one by one.
  template <int Count> TW_GPU void take_between(const Part<Out> &p, int row, int column) const {
    constexpr int along = length / Count + 1;
#pragma unroll 1
    for (int at = me.thread; at < lines * along; at += 128) {
      const int line = at / along;
      const Out *to = p.e + S::row_at(x, p.z, (S::SwapAB ? column : row) + line) + (S::SwapAB ? row : column);
      const int first = at % along * Count - int(reinterpret_cast<uintptr_t>(to) / sizeof(Out) % Count);
      if (first >= 0 && first + Count <= length) {
        Sum accum[Count];
#pragma unroll
        for (int n = 0; n < Count; ++n) accum[n] = staging[place(line, first + n)];
        put(accum, p, row, column, line, first);
        continue;
      }
#pragma unroll 1
      for (int n = first < 0 ? 0 : first; n < length && n < first + Count; ++n) {
        const Sum accum[1] = {staging[place(line, n)]};
        put(accum, p, row, column, line, n);
      }
    }
  }
  // Neighbours of a line of the staging buffer that begins at (row, column) of the kernel.
  template <int Count>
  TW_GPU void put(const Sum (&accum)[Count], const Part<Out> &p, int row, int column, int line, int at) const {
    if constexpr (S::SwapAB) store(accum, p, row + at, column + line);
    else store(accum, p, row + line, column + at);
  }
  struct alignas(8) Pair {
    Sum left, right;
  };
  TW_GPU void lay_out(const Sum (&d)[S::BN / 2], int column) const {
#pragma unroll
    for (int j = 0; j < S::chunk_columns / 8; ++j)
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        const Sum *v = &d[(column / 8 + j) * 4 + up * 2];
        const int r = me.warp * 16 + up * 8 + me.lane / 4, q = j * 8 + me.lane % 4 * 2;
        if constexpr (S::SwapAB) staging[place(q, r)] = v[0], staging[place(q + 1, r)] = v[1];
        else *reinterpret_cast<Pair *>(staging + place(r, q)) = Pair{v[0], v[1]};
      }
  }
};

template <bool Copies, class S, class Config> struct way_out {
  using type = DirectEpilogueStore<S, Config>;
};
template <class S, class Config> struct way_out<true, S, Config> {
  using type = TmaEpilogueStore<S, Config>;
};

// Config: C (the output type), D, epilogue, num_d.
template <class S, class Config> struct EpilogueStore {
  using Out = typename Config::C;
  using Sum = SumOf<S>;

  const TmaWsArgs &x;
  const Warpgroup &me;
  const DirectEpilogueStore<S, Config> stores;  // also of what was collected
  typename way_out<S::TmaStore, S, Config>::type out;

  TW_GPU EpilogueStore(const TensorMap &map_e, const TensorMap &map_d, const TmaWsArgs &args, const Warpgroup &group,
                       const SharedMemory<S> &shared)
      : x(args), me(group), stores(map_e, map_d, args, group, shared), out(map_e, map_d, args, group, shared) {}

  // While the first stage of a segment is multiplied.
  TW_GPU void begin(const Segment &s, const Place<S> &place) {
    if (S::Scheduler == TileScheduler::split_k && x.order.parts > 1) return;
    if (S::Scheduler == TileScheduler::stream_k && s.k0 > 0) return;
    out.begin(part(s, place));
  }
  TW_GPU void operator()(Accumulators<S> &d, const Segment &s, const Place<S> &place) {
    const Part<Out> p = part(s, place);
    if constexpr (S::Scheduler != TileScheduler::data_parallel) {
      if (collected(d, s, p)) return;
    }
    out(d, p);
  }
  // Nobody leaves before TMA has read the last buffer.
  TW_GPU void end() const {
    if (S::TmaStore && me.thread == 0) tma_wait_read<0>();
  }

 private:
  TW_GPU Part<Out> part(const Segment &s, const Place<S> &place) const {
    return {(s.m * S::ClusterM + place.m) * S::BM + (S::PingPong ? 0 : me.who * S::rows),
            (s.n * S::ClusterN + place.n) * S::BN, s.z, static_cast<Out *>(x.e) + s.z * x.e_batch_stride};
  }
  TW_GPU bool collected(Accumulators<S> &d, const Segment &s, const Part<Out> &p) const {
    const Collect<S> collect(x, me);
    if constexpr (S::Scheduler == TileScheduler::stream_k) return collect.stream_k(d, s);
    else
      return collect.split_k(d, s, [&](int index, const float4 &v) {
        // Where a float4 of a thread's accumulators belongs: two columns of two rows, eight apart.
        const int unit = index / 128, owner = index % 128, i = unit / (S::BN / 8);
        const int r = p.row + i * 64 + owner / 32 * 16 + owner % 32 / 4,
                  c = p.column + unit % (S::BN / 8) * 8 + owner % 4 * 2;
        const Sum accum[4] = {from_word<Sum>(v.x), from_word<Sum>(v.y), from_word<Sum>(v.z), from_word<Sum>(v.w)};
#pragma unroll
        for (int q = 0; q < 4; q += S::SwapAB ? 1 : 2)
          if constexpr (S::SwapAB) stores.store({accum[q]}, p, r + q / 2 * 8, c + q % 2);
          else stores.store({accum[q], accum[q + 1]}, p, r + q / 2 * 8, c);
      });
  }
};

}  // namespace tw
