// The tma_ws pipeline: one warpgroup feeds tiles of A and B through a ring of stages with the copy
// engine, two multiply them with wgmma.  Blocks stay and take segment after segment of the work; the
// blocks of a cluster that need the same rows of A or columns of B each fetch a part for all of them.
//
// `cooperative`: both multiply halves of one tile.  `pingpong`: each has a tile of its own, and one
// multiplies while the other stores.
//
// `turned`: the problem is transposed, E^T = B^T A^T, so that a handful of rows of A lie along n, where
// a tile may be as narrow as 8.
#pragma once
#include <tilewright/cuda/tma.h>
#include <tilewright/cuda/tma_ws_shape.h>
#include <tilewright/cuda/wgmma.h>
#include <tilewright/gpu/split_k.h>

namespace tw {

// The block's place in its cluster: blocks of one row share A, blocks of one column share B.
template <class S> struct Place {
  int m, n;
  TW_GPU Place() {
    uint32_t rank = S::Cluster > 1 ? cluster_rank() : 0;
    m = rank % S::ClusterM;
    n = rank / S::ClusterM;
  }
  TW_GPU uint16_t row() const {
    uint16_t mask = 0;
#pragma unroll
    for (int i = 0; i < S::ClusterN; ++i) mask |= uint16_t(1u << (m + i * S::ClusterM));
    return mask;
  }
  TW_GPU uint16_t column() const { return uint16_t(((1u << S::ClusterM) - 1) << (n * S::ClusterM)); }
};

// `Whole` rows or columns of an operand, of which this block fetches one of `Parts` for all in `mask`.
template <int Whole, int Parts, int Major>
TW_GPU void fetch(const TensorMap &map, Barrier *done, char *to, int k, int at, int z, int part, uint16_t mask) {
  constexpr int here = Whole / Parts;
  static_assert(Major == 0 || here % 64 == 0, "parts of an m- or n-contiguous operand are 64 wide");
  if constexpr (Major == 0) {
    char *place = to + part * here * 128;
    if constexpr (Parts == 1) tma_load(&map, done, place, k, at, z);
    else tma_load_multicast(&map, done, place, k, at + part * here, z, mask);
  } else {
#pragma unroll
    for (int i = 0; i < here / 64; ++i) {
      char *place = to + (part * here / 64 + i) * 8192;
      if constexpr (Parts == 1) tma_load(&map, done, place, at + i * 64, k, z);
      else tma_load_multicast(&map, done, place, at + part * here + i * 64, k, z, mask);
    }
  }
}

// The same of an operand packed beforehand: `lines` of a block of k, as the stage wants them.  Where there
// are fewer than a tile has, the stage keeps what it held: that only meets results nobody stores.
template <int Whole, int Parts>
TW_GPU void fetch_packed(const char *from, Barrier *done, char *to, int lines, int part, uint16_t mask) {
  constexpr int here = Whole / Parts;
  static_assert(here % 8 == 0, "parts of a packed operand are whole atoms");
  const int mine = min(lines - part * here, here);
  if (mine <= 0) return;
  if constexpr (Parts == 1) bulk_load(from, done, to, mine * 128);
  else bulk_load_multicast(from + part * here * 128, done, to + part * here * 128, mine * 128, mask);
}

template <class S> TW_GPU void feed(const TensorMap &map_a, const TensorMap &map_b, const TmaWsArgs &x, char *shared,
                                    Barrier *full, Barrier *empty) {
  Place<S> place;
  Ring<S::Stages> ring;
  Work<S::Dealt> work(x.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster);
  Segment s;
  while (work.next(s)) {
    int row = (s.m * S::ClusterM + place.m) * S::BM, column = (s.n * S::ClusterN + place.n) * S::BN;
    int z_a = s.z * x.every_a, z_b = s.z * x.every_b, bytes = S::a_bytes + S::b_bytes;
    int lines = 0;  // of the packed operand
    const char *packed = nullptr;
    if constexpr (S::PackedA || S::PackedB) {
      const int first = S::PackedA ? row : column, whole = S::PackedA ? S::BM : S::BN;
      lines = max(0, min(x.packed_lines - first, whole));
      bytes -= (whole - lines) * 128;
      packed = x.packed + (S::PackedA ? z_a : z_b) * x.packed_batch + first * 128ll;
    }
    for (int step = s.k0; step < s.k1; ++step, ring.next()) {
      empty[ring.stage].wait(ring.phase ^ 1);
      char *a = shared + ring.stage * S::stage_bytes;
      Barrier *done = &full[ring.stage];
      done->expect(bytes);
      if constexpr (S::PackedA)
        fetch_packed<S::BM, S::ClusterN>(packed + step * x.packed_block, done, a, lines, place.n, place.row());
      else fetch<S::BM, S::ClusterN, S::MajorA>(map_a, done, a, step * S::BK, row, z_a, place.n, place.row());
      char *b = a + S::a_bytes;
      if constexpr (S::PackedB)
        fetch_packed<S::BN, S::ClusterM>(packed + step * x.packed_block, done, b, lines, place.m, place.column());
      else fetch<S::BN, S::ClusterM, S::MajorB>(map_b, done, b, step * S::BK, column, z_b, place.m, place.column());
    }
  }
  if constexpr (S::Cluster > 1)  // nobody leaves while a neighbour may still write here or arrive here
    for (int i = 0; i < S::Stages; ++i, ring.next()) empty[ring.stage].wait(ring.phase ^ 1);
}

// Every block that writes into this one's stages hears that one is free.
template <class S> TW_GPU void give_back(Barrier *empty, int stage, const Place<S> &place) {
  int target = threadIdx.x % 128;
  if constexpr (S::Cluster == 1) {
    if (target == 0) empty[stage].arrive();
  } else {
    if (target < S::Cluster && (target % S::ClusterM == place.m || target / S::ClusterM == place.n))
      empty[stage].arrive_at(target);
  }
}

// A sum on its way to E, as the kernel counts rows and columns.
template <class S, class Out, class Finished, class Sum>
TW_GPU void put(Out *e, const TmaWsArgs &x, const Finished &finish, Sum sum, int z, int row, int column) {
  if (row >= x.m || column >= x.n) return;
  if constexpr (S::Turned) e[column * x.e_stride + row] = finish(sum, z, column, row);
  else e[row * x.e_stride + column] = finish(sum, z, row, column);
}

// Sums of one tile that are spread over blocks come together here, in the order of k.  True: this
// warpgroup has nothing left to do for the segment.
template <class S, class Sum, class Emit> TW_GPU bool collect(Sum (&d)[S::blocks_m][S::BN / 2], const Segment &s,
                                                              const TmaWsArgs &x, int who, int thread, Emit emit) {
  constexpr int tile = S::BM * S::BN, octets = S::BN / 8;
  const int piece = S::PingPong ? 0 : who * S::rows * S::BN, rank = blockIdx.x % S::Cluster;
  auto place = [&](long long block, int i, int j) {
    return reinterpret_cast<float4 *>(x.partial + block * tile + piece) + (i * octets + j) * 128 + thread;
  };
  auto hand_in = [&](long long block) {
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < octets; ++j) {
        const Sum *v = &d[i][j * 4];
        store_through(place(block, i, j), float4{to_word(v[0]), to_word(v[1]), to_word(v[2]), to_word(v[3])});
      }
    __threadfence();
    named_barrier(2 + who, 128);
  };
  if constexpr (S::Dealt == Deal::split_k) {
    const int parts = x.order.parts;
    if (parts == 1) return false;
    const long long first = (long long)s.tile * parts * S::Cluster + rank;
    hand_in(first + s.part * S::Cluster);
    if (thread == 0) meet(x.flags + 2 * ((s.tile * S::Cluster + rank) * 2 + (S::PingPong ? 0 : who)), parts);
    named_barrier(2 + who, 128);
    add_up<128, Sum>(x.partial + first * tile + piece, S::Cluster * tile, S::blocks_m * octets * 128, s.part, parts,
                     thread, emit);
    return true;
  } else {
    // The block with a tile's first k collects from its neighbours.
    const int half = S::PingPong ? 0 : who;
    if (s.k0 > 0) {
      hand_in(blockIdx.x);
      if (thread == 0) atomicExch(&x.flags[blockIdx.x * 2 + half], 1u);
      return true;
    }
    int from = blockIdx.x;
    for (int got = s.k1; got < x.order.steps; got += x.order.share) {
      from += S::Cluster;
      if (thread == 0) {
        unsigned *flag = &x.flags[from * 2 + half];
        while (atomicAdd(flag, 0u) == 0u) TW_SPIN();
        atomicExch(flag, 0u);  // ready for the next launch
        __threadfence();
      }
      named_barrier(2 + who, 128);
#pragma unroll
      for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
        for (int j = 0; j < octets; ++j) {
          float4 v = load_through(place(from, i, j));
          Sum *to = &d[i][j * 4];
          to[0] += from_word<Sum>(v.x), to[1] += from_word<Sum>(v.y), to[2] += from_word<Sum>(v.z),
              to[3] += from_word<Sum>(v.w);
        }
    }
    return false;
  }
}

// Config: C (the output type), D, epilogue, num_d.
template <class S, class Config> TW_GPU void multiply(const TensorMap &map_e, const TmaWsArgs &x, char *shared,
                                                      char *out, Barrier *full, Barrier *empty) {
  const int who = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = threadIdx.x % 32, warp = thread / 32;
  using Out = typename Config::C;
  using Sum = typename sum_of<typename S::In>::type;
  const Finish<Config> finish(x.finish);
  Place<S> place;
  Ring<S::Stages> ring;
  char *chunks = out + who * S::buffers * S::chunk;
  int turn = 0, number = 0;
  if (S::PingPong && who == 1) named_arrive(4, 256);  // the first turn is the other's
  Work<S::Dealt> work(x.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster);
  Segment s;
  while (work.next(s)) {
    int steps = s.k1 - s.k0;
    if (S::PingPong && (number++ & 1) != who) {  // the other's: its stages go by
      int at = ring.stage + steps;
      ring.phase ^= (at / S::Stages) & 1;
      ring.stage = at % S::Stages;
      continue;
    }
    Sum d[S::blocks_m][S::BN / 2];
    if (S::PingPong) named_barrier(4 + who, 256);
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      full[ring.stage].wait(ring.phase);
      char *stage = shared + ring.stage * S::stage_bytes;
      char *a = stage + (S::PingPong ? 0 : who * S::rows * 128), *b = stage + S::a_bytes;
#pragma unroll
      for (int i = 0; i < S::blocks_m; ++i) hold(d[i]);
      wgmma_fence();
      uint64_t at_a = S::MajorA ? operand(a, 1024, 8192) : operand(a),
               at_b = S::MajorB ? operand(b, 1024, 8192) : operand(b);
      constexpr int a_next = S::MajorA ? 16 * 128 / 16 : 2,
                    b_next = S::MajorB ? 16 * 128 / 16 : 2;  // one instruction's k
#pragma unroll
      for (int kk = 0; kk < 4; ++kk)
#pragma unroll
        for (int i = 0; i < S::blocks_m; ++i)
          Wgmma<S::BN, typename S::In, S::MajorA, S::MajorB>::run(d[i], at_a + i * 8192 / 16 + kk * a_next,
                                                                  at_b + kk * b_next, step | kk);
      wgmma_commit();
#pragma unroll
      for (int i = 0; i < S::blocks_m; ++i) hold(d[i]);
      // One multiply stays in flight; the stage before it is done and goes back.
      wgmma_wait<1>();
      if (step > 0) give_back<S>(empty, before, place);
      before = ring.stage;
      ring.next();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i) hold(d[i]);
    give_back<S>(empty, before, place);
    if (S::PingPong) named_arrive(4 + (who ^ 1), 256);

    int row = (s.m * S::ClusterM + place.m) * S::BM + (S::PingPong ? 0 : who * S::rows);
    int column = (s.n * S::ClusterN + place.n) * S::BN;
    Out *e = static_cast<Out *>(x.e) + s.z * x.e_batch_stride;
    if constexpr (S::Dealt != Deal::tiles) {
      if (collect<S>(d, s, x, who, thread, [&](int index, const float4 &v) {
            // Where a float4 of a thread's sums belongs: two columns of two rows, eight apart.
            const int unit = index / 128, owner = index % 128, i = unit / (S::BN / 8);
            const int r = row + i * 64 + owner / 32 * 16 + owner % 32 / 4,
                      c = column + unit % (S::BN / 8) * 8 + owner % 4 * 2;
            const Sum sums[4] = {from_word<Sum>(v.x), from_word<Sum>(v.y), from_word<Sum>(v.z), from_word<Sum>(v.w)};
#pragma unroll
            for (int q = 0; q < 4; ++q) put<S>(e, x, finish, sums[q], s.z, r + q / 2 * 8, c + q % 2);
          }))
        continue;
    }
    if constexpr (S::TmaStore) {
      if (finish.only_scales()) {
        // Through buffers the copy engine empties.
        const float alpha = float(x.finish.alpha);
#pragma unroll
        for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
          for (int j = 0; j < S::BN / 2; ++j) d[i][j] *= alpha;
        constexpr int across = S::BN / S::chunk_columns;
#pragma unroll
        for (int first = 0; first < S::needed; first += S::batch) {
          if (thread == 0) tma_wait_read<S::buffers / S::batch - 1>();  // of what these buffers held before
          named_barrier(2 + who, 128);
#pragma unroll
          for (int g = 0; g < S::batch; ++g) {
            const int i = (first + g) / across, c = (first + g) % across * S::chunk_columns;
            char *buffer = chunks + (turn + g) * S::chunk;
#pragma unroll
            for (int j = 0; j < S::chunk_columns / 8; j += 2) {
              const float *v = &d[i][(c / 8 + j) * 4];
              int r = warp * 16 + lane % 16, column16 = j + lane / 16;
              int swizzle = S::chunk_columns == 64 ? r & 7 : S::chunk_columns == 32 ? r >> 1 & 3 : r >> 2 & 1;
              char *to = buffer + r * S::chunk_columns * 2 + ((column16 ^ swizzle) << 4);
              store_matrices(to, pair(Out{}, v[0], v[1]), pair(Out{}, v[2], v[3]), pair(Out{}, v[4], v[5]),
                             pair(Out{}, v[6], v[7]));
            }
          }
          fence_async_proxy();
          named_barrier(2 + who, 128);
          if (thread == 0) {
#pragma unroll
            for (int g = 0; g < S::batch; ++g)
              tma_store(&map_e, chunks + (turn + g) * S::chunk, column + (first + g) % across * S::chunk_columns,
                        row + (first + g) / across * 64, s.z);
            tma_commit();
          }
          turn = turn + S::batch >= S::buffers ? 0 : turn + S::batch;
        }
        continue;
      }
    }
    if constexpr (S::blocks_m * S::BN <= 64 && !S::TmaStore && !S::Turned) {
      // Small tiles: straight from the registers, two neighbours at a time; a sheet's barriers take longer.
      struct alignas(2 * sizeof(Out)) Pair {
        Out left, right;
      };
      if (finish.only_scales() && reinterpret_cast<uintptr_t>(x.e) % sizeof(Pair) == 0 &&
          (x.e_stride | x.e_batch_stride) % 2 == 0) {
#pragma unroll
        for (int j = 0; j < S::BN / 4; ++j) {
          const Sum *v = &d[0][j * 2];
          const int r = row + warp * 16 + j % 2 * 8 + lane / 4, c = column + j / 2 * 8 + lane % 4 * 2;
          if (r >= x.m || c >= x.n) continue;
          Out *to = e + r * x.e_stride + c;
          if (c + 1 < x.n) *reinterpret_cast<Pair *>(to) = Pair{finish(v[0], s.z, r, c), finish(v[1], s.z, r, c + 1)};
          else *to = finish(v[0], s.z, r, c);
        }
        continue;
      }
    }
    // Through one sheet of sums (its columns swizzled over the banks), from which threads go along
    // rows: what is fused reads its tensors and writes E in whole lines, whatever their alignment.
    struct alignas(8) Two {
      Sum left, right;
    };
    Sum *sheet = reinterpret_cast<Sum *>(chunks);
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int c = 0; c < S::BN; c += S::chunk_columns) {
        named_barrier(2 + who, 128);
#pragma unroll
        for (int j = 0; j < S::chunk_columns / 8; ++j)
#pragma unroll
          for (int up = 0; up < 2; ++up) {
            const Sum *v = &d[i][(c / 8 + j) * 4 + up * 2];
            int r = warp * 16 + up * 8 + lane / 4, at = (j * 8 + lane % 4 * 2) ^ r * 8 % S::chunk_columns;
            *reinterpret_cast<Two *>(sheet + r * S::chunk_columns + at) = Two{v[0], v[1]};
          }
        named_barrier(2 + who, 128);
#pragma unroll(S::blocks_m *S::BN / 2 >= 144 ? 1 : 2)  // beside so many sums there is no register left for a second
        for (int at = thread; at < 64 * S::chunk_columns; at += 128) {
          int r = S::Turned ? at % 64 : at / S::chunk_columns, q = S::Turned ? at / 64 : at % S::chunk_columns;
          Sum sum = sheet[r * S::chunk_columns + (q ^ r * 8 % S::chunk_columns)];
          put<S>(e, x, finish, sum, s.z, row + i * 64 + r, column + c + q);
        }
      }
  }
  if (S::TmaStore && thread == 0) tma_wait_read<0>();
}

template <class S, class Config>
TW_GPU void gemm_tma_ws(const TensorMap &map_a, const TensorMap &map_b, const TensorMap &map_e, const TmaWsArgs &x) {
  char *raw = dynamic_shared();
  char *shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  char *out = shared + S::Stages * S::stage_bytes;
  Barrier *full = reinterpret_cast<Barrier *>(out + 2 * S::buffers * S::chunk), *empty = full + S::Stages;
  if (threadIdx.x == 0) {
    if (!S::PackedA) tma_prefetch(&map_a);
    if (!S::PackedB) tma_prefetch(&map_b);
    for (int i = 0; i < S::Stages; ++i) {
      full[i].init(1);
      empty[i].init((S::ClusterM + S::ClusterN - 1) * (S::PingPong ? 1 : 2));
    }
    fence_barriers();
  }
  if (S::Cluster > 1) cluster_sync();
  else __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x < 32 && elect_one()) feed<S>(map_a, map_b, x, shared, full, empty);
  } else {
    take_registers<232>();
    multiply<S, Config>(map_e, x, shared, out, full, empty);
  }
  if (S::Cluster > 1) cluster_sync();
}

}  // namespace tw
