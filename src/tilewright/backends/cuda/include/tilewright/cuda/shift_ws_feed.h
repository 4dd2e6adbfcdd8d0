// How the four feeding warps of a shift_ws kernel fill stages without the copy engine: rows that begin anywhere are copied
// word by word to where the copy engine would have laid them, and once they are there shifted into place.
//
// A row of a stage is 128 bytes, a word for each lane; a warp has every fourth row, so that all of its rows begin at the
// same place inside a word.  What a word lacks in the end its neighbour has; the last one's is kept apart, as a tail.
#pragma once
#include <tilewright/cuda/copies.h>
#include <tilewright/cuda/shift_ws_shape.h>
#include <tilewright/cuda/tma_ws_parts.h>

namespace tw {

// Where a step is: of which tile, and of k.
template <class S> struct FedStep {
  Work<S::Dealt> work;
  Segment s;
  int step = 0;

  TW_GPU explicit FedStep(const TmaWsArgs &x)
      : work(x.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster, blockIdx.x % S::Cluster) {
    s.k1 = 0;
  }
  TW_GPU bool next() {
    if (++step < s.k1) return true;
    const bool more = work.next(s);
    step = s.k0;
    if (!more) s.k1 = 0;  // who asks again hears the same
    return more;
  }
};

// One operand of a stage: Lines of it, contiguous along k or (Major) along lines, of which 64 lie behind the 64 before.
template <int Lines, int Major, int Size> struct ShiftOperand {
  static constexpr int blocks = Major ? (Lines + 63) / 64 : 1,
                       rows = (Major ? 64 : Lines) / 4;  // of a block, for a warp
  static constexpr int all_rows = blocks * rows * 4, together = rows % 4 ? 2 : 4;
  static_assert(rows % 2 == 0, "rows that lie eight apart are swizzled alike");

  const Rows &x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // Where the warp's first row begins, of a tile that begins at `line`.
  TW_GPU const char *begin(int z, int line, int k) const {
    return x.at + z * x.batch_stride + ((Major ? k : line) + warp) * x.stride + (long long)(Major ? line : k) * Size;
  }
  static TW_GPU int between(const char *at) { return int(reinterpret_cast<uintptr_t>(at) & 3); }
  // A lane's word of the warp's first and second row.
  TW_GPU char *place(char *stage, int second) const {
    return stage + warp * 128 + ((lane / 4 ^ (warp + 4 * second)) * 16 + lane % 4 * 4);
  }

  TW_GPU void copy(char *stage, uint32_t *tails, int z, int line, int lines, int k, int all_k) const {
    const char *at = begin(z, line, k);
    const int before = between(at), there = (Major ? all_k - k : lines - line) - warp;
    const long long four = 4 * x.stride;
    int bytes = (Major ? lines - line : all_k - k) * Size + before;  // of a row from its first word on
    at -= before;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block, stage += 8192, tails += 64, at += 128, bytes -= 128) {
      char *place_even = place(stage, 0), *place_odd = place(stage, 1);
      const char *from = at + lane * 4;
      const int inside = lane * 4 < bytes ? there : 0;
#pragma unroll(together)
      for (int j = 0; j < rows; ++j, from += four)
        copy_async<4>((j % 2 ? place_odd : place_even) + j * 512, j * 4 < inside ? from : at, j * 4 < inside ? 4 : 0);
      if (before)
        for (int j = lane; j < rows; j += 32) {
          const bool any = j * 4 < there && bytes > 128;
          copy_async<4>(reinterpret_cast<char *>(tails + warp + j * 4), any ? at + j * four + 128 : at, any ? 4 : 0);
        }
    }
  }
  // What was copied, a stage later.  Beyond k there are zeros.
  TW_GPU void settle(char *stage, const uint32_t *tails, int z, int line, int k, int all_k) const {
    const int shift = between(begin(z, line, k)) * 8, inside = Major ? 4 : (all_k - k) * Size - lane * 4;
    const uint32_t keep = inside >= 4 ? ~0u : inside <= 0 ? 0u : (1u << inside * 8) - 1;
    if (shift == 0 && (Major || (all_k - k) * Size >= 128)) return;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block, stage += 8192, tails += 64) {
      char *mine[2] = {place(stage, 0), place(stage, 1)};
      // The neighbour's word: four of them lie together, and the next four are swizzled.
      const char *next[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        next[i] = stage + warp * 128 + (((lane + 1) / 4 % 8 ^ (warp + 4 * i)) * 16 + (lane + 1) % 4 * 4);
#pragma unroll 1
      for (int first = 0; first < rows; first += together) {
        uint32_t low[together], high[together];
#pragma unroll
        for (int i = 0; i < together; ++i) {
          low[i] = *reinterpret_cast<const uint32_t *>(mine[i % 2] + (first + i) * 512);
          const char *behind = lane == 31 ? reinterpret_cast<const char *>(tails + warp + (first + i) * 4)
                                          : next[i % 2] + (first + i) * 512;
          high[i] = *reinterpret_cast<const uint32_t *>(behind);
        }
        __syncwarp();  // all have read
#pragma unroll
        for (int i = 0; i < together; ++i)
          *reinterpret_cast<uint32_t *>(mine[i % 2] + (first + i) * 512) = funnel(low[i], high[i], shift) & keep;
      }
    }
  }
};

template <class S> TW_GPU void feed_by_warps(const ShiftWsArgs &x, const SharedMemory<S> &shared) {
  constexpr int size = sizeof(typename S::In), ahead = S::Stages > 2 ? S::Stages - 2 : 1;  // stages under way
  const ShiftOperand<S::BM, S::MajorA, size> a{x.a};
  const ShiftOperand<S::BN, S::MajorB, size> b{x.b};
  uint32_t *tails = reinterpret_cast<uint32_t *>(reinterpret_cast<char *>(shared.full) + S::barrier_bytes);
  FedStep<S> comes(x), settles(x);
  Ring<S::Stages> into, from;
  for (int number = 0;; ++number) {
    if (comes.next()) {
      const Segment &s = comes.s;
      const int k = comes.step * S::BK;
      char *stage = shared.stages + into.stage * S::stage_bytes;
      uint32_t *tail = tails + into.stage * S::tails;
      shared.empty[into.stage].wait(into.phase ^ 1);
      a.copy(stage, tail, s.z * x.every_a, s.m * S::BM, x.m, k, x.k);
      b.copy(stage + S::a_bytes, tail + a.all_rows, s.z * x.every_b, s.n * S::BN, x.n, k, x.k);
      into.next();
    }
    commit_copies();
    if (number < ahead) continue;
    if (!settles.next()) return;
    const Segment &s = settles.s;
    const int k = settles.step * S::BK;
    char *stage = shared.stages + from.stage * S::stage_bytes;
    const uint32_t *tail = tails + from.stage * S::tails;
    wait_copies<ahead>();
    __syncwarp();  // those of the whole warp
    a.settle(stage, tail, s.z * x.every_a, s.m * S::BM, k, x.k);
    b.settle(stage + S::a_bytes, tail + a.all_rows, s.z * x.every_b, s.n * S::BN, k, x.k);
    fence_async_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.full[from.stage].arrive();
    from.next();
  }
}

}  // namespace tw
