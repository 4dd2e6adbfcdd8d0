// How the eight feeding warps of a shift_ws kernel fill stages without the copy engine: rows that begin anywhere are copied
// word by word to where the copy engine would have laid them, and once they are there shifted into place.
//
// A row of a stage is 128 bytes, a word for each lane; a warp has every eighth row, so that all of its rows begin at the
// same place inside a word, and are swizzled alike.  What a word lacks in the end its neighbour has; the last one's is kept
// apart, as a tail.
#pragma once
#include <tilewright/cuda/copies.h>
#include <tilewright/cuda/mma.h>
#include <tilewright/cuda/shift_ws_shape.h>
#include <tilewright/cuda/tma_ws_parts.h>

namespace tw {

struct Feeder {
  static constexpr int warps = 8;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4 + (threadIdx.x < 128 ? 0 : 4);
  // A lane's word of the warp's first row, or its neighbour's.
  TW_GPU int place(int word) const { return warp * 128 + ((word / 4 % 8 ^ warp) * 16 + word % 4 * 4); }
};

// Which step of which tile comes next.
template <class S> struct FedStep {
  Work<S::Dealt> work;
  Segment s;
  int step = 0;
  bool fresh = false;  // the tile's first step

  TW_GPU explicit FedStep(const TmaWsArgs &x)
      : work(x.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster, blockIdx.x % S::Cluster) {
    s.k1 = 0;
  }
  TW_GPU bool next() {
    fresh = ++step >= s.k1;
    if (!fresh) return true;
    const bool more = work.next(s);
    step = s.k0;
    if (!more) s.k1 = 0;  // who asks again hears the same
    return more;
  }
};

// One operand of a stage: Lines of it, contiguous along k or (Major) along lines, of which 64 lie behind the 64 before.
template <int Lines, bool Major, int Size> struct ShiftOperand {
  static constexpr int blocks = Major ? (Lines + 63) / 64 : 1,
                       rows = (Major ? 64 : Lines) / 8;  // of a block, for a warp
  static constexpr int all_rows = blocks * rows * 8, together = rows % 8 == 0   ? 8
                                                                : rows % 4 == 0 ? 4
                                                                : rows % 2      ? 1
                                                                                : 2;

  const Rows &x;
  const Feeder me;
  const char *at = nullptr;  // where the warp's first row of a step begins
  int lines = 0;             // from the tile's first on

  TW_GPU explicit ShiftOperand(const Rows &rows_of) : x(rows_of) {}

  TW_GPU void begin(int z, int line, int all_lines, int k) {
    lines = all_lines - line;
    at = x.at + z * x.batch_stride + ((Major ? k : line) + me.warp) * x.stride + (long long)(Major ? line : k) * Size;
  }
  TW_GPU void advance() { at += Major ? 64 * x.stride : 128; }
  TW_GPU int between() const { return int(reinterpret_cast<uintptr_t>(at) & 3); }

  TW_GPU void copy(char *stage, uint32_t *tails, int k_left) const {
    const int before = between(), there = (Major ? k_left : lines) - me.warp;
    const long long eight = 8 * x.stride;
    int bytes = (Major ? lines : k_left) * Size + before;  // of a row from its first word on
    const char *first = at - before;
    stage += me.place(me.lane);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block, stage += 8192, tails += 64, first += 128, bytes -= 128) {
      const char *from = first + me.lane * 4;
      const int inside = me.lane * 4 < bytes ? there : 0;
#pragma unroll
      for (int j = 0; j < rows; ++j, from += eight) copy_async<4>(stage + j * 1024, from, j * 8 < inside ? 4 : 0);
      if (before)
        for (int j = me.lane; j < rows; j += 32)
          copy_async<4>(reinterpret_cast<char *>(tails + me.warp * rows + j), first + j * eight + 128,
                        j * 8 < there && bytes > 128 ? 4 : 0);
    }
  }
  // What was copied, when it is there.  Beyond k there are zeros.
  TW_GPU void settle(char *stage, const uint32_t *tails, int k_left) const {
    const int shift = between() * 8, inside = Major ? 4 : k_left * Size - me.lane * 4;
    if (shift == 0 && (Major || k_left * Size >= 128)) return;
    const uint32_t keep = inside >= 4 ? ~0u : inside <= 0 ? 0u : (1u << inside * 8) - 1;
    const bool last = me.lane == 31;
    const int apart = last ? 4 : 1024;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      char *mine = stage + block * 8192 + me.place(me.lane);
      const char *next = last ? reinterpret_cast<const char *>(tails + block * 64 + me.warp * rows)
                              : stage + block * 8192 + me.place(me.lane + 1);
#pragma unroll 1
      for (int j = 0; j < rows; j += together, mine += together * 1024) {
        uint32_t low[together], high[together];
#pragma unroll
        for (int i = 0; i < together; ++i, next += apart)
          low[i] = *reinterpret_cast<const uint32_t *>(mine + i * 1024),
          high[i] = *reinterpret_cast<const uint32_t *>(next);
        __syncwarp();  // all have read
#pragma unroll
        for (int i = 0; i < together; ++i)
          *reinterpret_cast<uint32_t *>(mine + i * 1024) = funnel(low[i], high[i], shift) & keep;
      }
    }
  }
};

// The same of words (tf32): they are rounded when they are there, and where lines are contiguous turned on their way.
template <int Lines, bool Major> struct ShiftOperand<Lines, Major, 4> {
  static constexpr int all_rows = 0;  // with tails
  // What a warp copies at a time: 32 words of a row, or of lines that are contiguous 16 by two k, which meets each bank
  // and each line of the cache twice.
  static constexpr int turns = Major ? 2 : 1, rows = Major ? (Lines + 15) / 16 : Lines / 8, apart = Major ? 16 : 8;

  const Rows &x;
  const Feeder me;
  const int line = Major ? me.lane % 16 : me.warp, k = Major ? me.warp * 2 + me.lane / 16 : me.lane;  // a lane's first
  const char *at = nullptr;
  int lines = 0;

  TW_GPU explicit ShiftOperand(const Rows &rows_of) : x(rows_of) {}

  TW_GPU void begin(int z, int first, int all_lines, int first_k) {
    lines = all_lines - first;
    const long long along_k = first_k + k, along_lines = first + line;
    at = x.at + z * x.batch_stride +
         (Major ? along_k * x.stride + along_lines * 4 : along_lines * x.stride + along_k * 4);
  }
  TW_GPU void advance() { at += Major ? 32 * x.stride : 128; }

  TW_GPU char *place(char *stage, int turn) const {
    const int my_k = k + turn * 16;
    return stage + line * 128 + ((my_k / 4 ^ line % 8) * 16 + my_k % 4 * 4);
  }
  TW_GPU void copy(char *stage, uint32_t *, int k_left) const {
    const long long next = Major ? apart * 4 : apart * x.stride;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      char *to = place(stage, turn);
      const char *from = at + turn * 16 * x.stride;
      const int inside = k + turn * 16 < k_left ? (lines < Lines ? lines : Lines) - line : 0;
#pragma unroll
      for (int j = 0; j < rows; ++j, from += next)
        if (Lines % apart == 0 || j * apart + line < Lines)
          copy_async<4>(to + j * apart * 128, from, j * apart < inside ? 4 : 0);
    }
  }
  TW_GPU void settle(char *stage, const uint32_t *, int) const {
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      char *to = place(stage, turn);
#pragma unroll
      for (int j = 0; j < rows; ++j)
        if (Lines % apart == 0 || j * apart + line < Lines) {
          auto *word = reinterpret_cast<uint32_t *>(to + j * apart * 128);
          *word = round_tf32(*word);
        }
    }
  }
};

// Both operands of the steps of a block, one after the other.
template <class S, bool LinesA, bool LinesB> struct FedOperands {
  static constexpr int size = sizeof(typename S::In);
  const ShiftWsArgs &x;
  FedStep<S> at;
  ShiftOperand<S::BM, LinesA, size> a;
  ShiftOperand<S::BN, LinesB, size> b;

  TW_GPU explicit FedOperands(const ShiftWsArgs &args) : x(args), at(args), a(args.a), b(args.b) {}

  TW_GPU bool next() {
    if (!at.next()) return false;
    if (at.fresh) {
      a.begin(at.s.z * x.every_a, at.s.m * S::BM, x.m, at.step * S::BK);
      b.begin(at.s.z * x.every_b, at.s.n * S::BN, x.n, at.step * S::BK);
    } else {
      a.advance();
      b.advance();
    }
    return true;
  }
  TW_GPU int k_left() const { return x.k - at.step * S::BK; }
};

// LinesA, LinesB: whether lines, not k, are contiguous in memory.
template <class S, bool LinesA, bool LinesB>
TW_GPU void feed_by_warps(const ShiftWsArgs &x, const SharedMemory<S> &shared) {
  constexpr int ahead = S::Stages > 2 ? S::Stages - 2 : 1;  // stages under way
  uint32_t *tails = reinterpret_cast<uint32_t *>(reinterpret_cast<char *>(shared.full) + S::barrier_bytes);
  FedOperands<S, LinesA, LinesB> comes(x), settles(x);
  Ring<S::Stages> into, from;
  for (int number = 0;; ++number) {
    if (comes.next()) {
      char *stage = shared.stages + into.stage * S::stage_bytes;
      uint32_t *tail = tails + into.stage * S::tails;
      shared.empty[into.stage].wait(into.phase ^ 1);
      comes.a.copy(stage, tail, comes.k_left());
      comes.b.copy(stage + S::a_bytes, tail + comes.a.all_rows, comes.k_left());
      into.next();
    }
    commit_copies();
    if (number < ahead) continue;
    if (!settles.next()) return;
    char *stage = shared.stages + from.stage * S::stage_bytes;
    const uint32_t *tail = tails + from.stage * S::tails;
    wait_copies<ahead>();
    __syncwarp();  // those of the whole warp
    settles.a.settle(stage, tail, settles.k_left());
    settles.b.settle(stage + S::a_bytes, tail + settles.a.all_rows, settles.k_left());
    fence_async_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.full[from.stage].arrive();
    from.next();
  }
}

}  // namespace tw
