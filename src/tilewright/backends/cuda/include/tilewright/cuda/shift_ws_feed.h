// How the eight feeding warps of a shift_ws kernel fill stages without the copy engine: rows that begin anywhere are loaded
// word by word, shifted into place in registers and laid down as the copy engine would have.
//
// A row of a stage is 128 bytes, a word for each lane; a warp has every eighth row, so that all of its rows begin at the
// same place inside a word, and are swizzled alike.  What a word lacks in the end its neighbour has, and the last one's
// the row's tail, the word behind it.  (Copies of single words by cp.async took 13 cycles a row on an H200.)
#pragma once
#include <tilewright/cuda/copies.h>
#include <tilewright/cuda/mma.h>
#include <tilewright/cuda/shift_ws_shape.h>
#include <tilewright/cuda/tma_ws_parts.h>

namespace tw {

struct Feeder {
  static constexpr int warps = 8;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4 + (threadIdx.x < 128 ? 0 : 4);
};

// One operand of a stage: Lines of it, contiguous along k or (Major) along lines, of which 64 lie behind the 64 before.
template <int Lines, bool Major, int Size> struct ShiftOperand {
  static constexpr int rows = (Major ? (Lines + 63) / 64 * 64 : Lines) / Feeder::warps;  // of a warp
  struct UnderWay {
    uint32_t words[rows], tail;  // the lane with a row's number has its tail
    int shift;
    uint32_t keep;  // bits of a lane's words that are inside k: beyond there are zeros
  };

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

  TW_GPU void load(UnderWay &u, int k_left) const {
    const int before = int(reinterpret_cast<uintptr_t>(at) & 3), there = (Major ? k_left : lines) - me.warp;
    const int bytes = (Major ? lines : k_left) * Size + before, inside = k_left * Size - me.lane * 4;
    const long long eight = 8 * x.stride;
    const char *from = at - before + me.lane * 4;
#pragma unroll
    for (int j = 0; j < rows; ++j) {
      const int block = Major ? j / 8 : 0, row = Major ? j % 8 : j;
      u.words[j] = 0;
      if (row * 8 < there && me.lane * 4 < bytes - block * 128)
        u.words[j] = __ldg(reinterpret_cast<const uint32_t *>(from + row * eight + block * 128));
    }
    u.shift = before * 8, u.tail = 0;
    u.keep = Major || inside >= 4 ? ~0u : inside <= 0 ? 0u : (1u << inside * 8) - 1;
    const int block = Major ? me.lane / 8 : 0, row = Major ? me.lane % 8 : me.lane;
    if (before && me.lane < rows && row * 8 < there && bytes > block * 128 + 128)
      u.tail = __ldg(reinterpret_cast<const uint32_t *>(at - before + row * eight + block * 128 + 128));
  }
  TW_GPU void store(char *stage, const UnderWay &u) const {
    char *to = stage + me.warp * 128 + ((me.lane / 4 ^ me.warp) * 16 + me.lane % 4 * 4);
    const int neighbour = (me.lane + 1) % 32;
    const bool last = me.lane == 31;
#pragma unroll
    for (int j = 0; j < rows; ++j) {
      uint32_t word = u.words[j];
      if (u.shift) {
        const uint32_t next = lane_at(word, neighbour), behind = lane_at(u.tail, j);
        word = funnel(word, last ? behind : next, u.shift);
      }
      *reinterpret_cast<uint32_t *>(to + j * 1024) = word & u.keep;
    }
  }
};

// The same of words (tf32): they are rounded, and where lines are contiguous turned on their way.
template <int Lines, bool Major> struct ShiftOperand<Lines, Major, 4> {
  // What a warp loads at a time: 32 words of a row, or of lines that are contiguous 16 by two k, which meets each bank
  // and each line of the cache twice.
  static constexpr int turns = Major ? 2 : 1, each = Major ? (Lines + 15) / 16 : Lines / 8, apart = Major ? 16 : 8;
  static constexpr int rows = turns * each;
  struct UnderWay {
    uint32_t words[rows];
  };

  const Rows &x;
  const Feeder me;
  const int line = Major ? me.lane % 16 : me.warp, k = Major ? me.warp * 2 + me.lane / 16 : me.lane;  // a lane's first
  const char *at = nullptr;
  int lines = 0;

  TW_GPU explicit ShiftOperand(const Rows &rows_of) : x(rows_of) {}

  TW_GPU void begin(int z, int first, int all_lines, int first_k) {
    lines = min(all_lines - first, Lines);
    const long long along_k = first_k + k, along_lines = first + line;
    at = x.at + z * x.batch_stride +
         (Major ? along_k * x.stride + along_lines * 4 : along_lines * x.stride + along_k * 4);
  }
  TW_GPU void advance() { at += Major ? 32 * x.stride : 128; }

  TW_GPU void load(UnderWay &u, int k_left) const {
    const long long next = Major ? apart * 4 : apart * x.stride;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const int inside = k + turn * 16 < k_left ? lines - line : 0;
#pragma unroll
      for (int j = 0; j < each; ++j) {
        uint32_t &word = u.words[turn * each + j];
        word = 0;
        if (j * apart < inside) word = __ldg(reinterpret_cast<const uint32_t *>(at + turn * 16 * x.stride + j * next));
      }
    }
  }
  TW_GPU void store(char *stage, const UnderWay &u) const {
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const int my_k = k + turn * 16;
      char *to = stage + line * 128 + ((my_k / 4 ^ line % 8) * 16 + my_k % 4 * 4);
#pragma unroll
      for (int j = 0; j < each; ++j)
        if (Lines % apart == 0 || j * apart + line < Lines)
          *reinterpret_cast<uint32_t *>(to + j * apart * 128) = round_tf32(u.words[turn * each + j]);
    }
  }
};

// A warp's share of stage after stage, of which some are under way in its registers.  LinesA, LinesB: whether lines, not k,
// are contiguous in memory.
template <class S, bool LinesA, bool LinesB> struct FeedByWarps {
  static constexpr int size = sizeof(typename S::In);
  using A = ShiftOperand<S::BM, LinesA, size>;
  using B = ShiftOperand<S::BN, LinesB, size>;
  static constexpr int rows = A::rows + B::rows, deep = rows <= 12 ? 4 : rows <= 24 ? 3 : 2;
  struct UnderWay {
    typename A::UnderWay a;
    typename B::UnderWay b;
    bool any = false;
  };

  const ShiftWsArgs &x;
  const SharedMemory<S> &shared;
  Work<S::Dealt> work;
  Segment s;
  int step = 0, flying = 0;  // stages under way
  Ring<S::Stages> ring;
  A a;
  B b;

  TW_GPU FeedByWarps(const ShiftWsArgs &args, const SharedMemory<S> &memory)
      : x(args),
        shared(memory),
        work(args.order, blockIdx.x / S::Cluster, gridDim.x / S::Cluster, blockIdx.x % S::Cluster),
        a(args.a),
        b(args.b) {
    s.k1 = 0;
  }
  TW_GPU void run() {
    UnderWay first, second, third, fourth;  // no array: the compiler put one into memory
    while (turn(first) && turn(second) && (deep < 3 || turn(third)) && (deep < 4 || turn(fourth))) {}
  }

 private:
  // What is under way is laid down and what comes `deep` steps later takes its place; false: nothing is left.
  TW_GPU bool turn(UnderWay &u) {
    if (u.any) lay_down(u);
    u.any = next();
    if (!u.any) return flying > 0;
    const int k_left = x.k - step * S::BK;
    a.load(u.a, k_left);
    b.load(u.b, k_left);
    ++flying;
    return true;
  }
  TW_GPU void lay_down(const UnderWay &u) {
    char *stage = shared.stages + ring.stage * S::stage_bytes;
    shared.empty[ring.stage].wait(ring.phase ^ 1);
    a.store(stage, u.a);
    b.store(stage + S::a_bytes, u.b);
    fence_async_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.full[ring.stage].arrive();
    ring.next();
    --flying;
  }
  TW_GPU bool next() {
    if (++step < s.k1) {
      a.advance();
      b.advance();
      return true;
    }
    if (!work.next(s)) {
      s.k1 = 0;  // who asks again hears the same
      return false;
    }
    step = s.k0;
    a.begin(s.z * x.every_a, s.m * S::BM, x.m, step * S::BK);
    b.begin(s.z * x.every_b, s.n * S::BN, x.n, step * S::BK);
    return true;
  }
};

}  // namespace tw
