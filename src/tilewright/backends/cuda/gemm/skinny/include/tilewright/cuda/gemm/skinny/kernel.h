// The skinny pipeline: a handful of rows of A against a large B, at the speed of memory.
//
// B goes from memory straight into the registers of mma.sync: the order of k inside a matrix instruction does not
// matter as long as both operands use the same, nor does the order of rows as long as results are stored by it.  Where
// k is contiguous, each thread takes eight neighbouring k of its row; where rows (lines) are, it takes neighbouring
// lines of four k and pairs them up.  The warps of a block share its rows of B and split k; their accumulators are added in
// shared memory, warp after warp.
#pragma once
#include <tilewright/cuda/copies/copies.h>
#include <tilewright/cuda/primitives/mma.h>
#include <tilewright/cuda/gemm/skinny/shape.h>
#include <tilewright/cuda/primitives/stay.h>

namespace tw {

// A column more than there are: neighbouring rows lie in other banks.
template <class S> using SkinnyAccumulators = float[S::Warps][S::rows][S::tokens + 1];

// What the warps of a block summed up, added and stored.
// Config: C (the output type), D, epilogue, num_d.
template <class S, class Config>
TW_GPU void skinny_leave(const SkinnyArgs &x, const SkinnyAccumulators<S> &accum, int first, int few) {
  const Finish<Config> finish(x.finish);
  auto *e = static_cast<typename Config::C *>(x.e) + blockIdx.y * x.e_batch;
#pragma unroll 1
  for (int at = threadIdx.x; at < S::many * S::tokens; at += S::threads) {
    int column = at / S::many, row = at % S::many, token = few + column, many = first + row;
    if (token >= x.m || many >= x.n) continue;
    if constexpr (S::Dual) row = row / 8 * 16 + row % 8;
    float total = 0, up = 0;
#pragma unroll
    for (int u = 0; u < S::Warps; ++u) {
      total += load_shared<float>(&accum[u][row][column]);
      if constexpr (S::Dual) up += load_shared<float>(&accum[u][row + 8][column]);
    }
    if constexpr (S::Dual) e[token * x.e_stride + many] = finish.both(total, up);
    else if constexpr (S::Swapped) e[many * x.e_stride + token] = finish(total, blockIdx.y, many, token);
    else e[token * x.e_stride + many] = finish(total, blockIdx.y, token, many);
  }
}

// Pairs of neighbouring k of one of the few rows, line after line, from k on: a thread has 2 * Pairs k, `quad` of them
// before others have theirs.  Where k is contiguous they are read so.  Else a warp reads 8 x 8 pieces as they lie,
// neighbouring rows of one k a word, and transposes them when they are multiplied.  Zeros beyond the matrix.
template <class S, int Pairs> struct Few {
  uint32_t w[Pairs];

  // `first` of the eight rows, and k, of the warp.
  TW_GPU void load(const SkinnyArgs &x, const uint16_t *a, int first, int k, int quad, int line) {
    if constexpr (S::FewLines) {
      const int row = first + 2 * quad, mine = k + line / 2 * 2 * Pairs + line % 2;
      const int there = mine < x.k ? x.m - row : 0;  // k comes in eights
#pragma unroll
      for (int i = 0; i < Pairs; ++i) {
        const uint16_t *p = a + (mine + 2 * i) * x.a_stride + row;
        w[i] = 0;
        if (there > 1) w[i] = __ldg(reinterpret_cast<const uint32_t *>(p));
        else if (there == 1) w[i] = __ldg(p);
      }
    } else {
      const int row = first + line, mine = k + quad * 2 * Pairs;
#pragma unroll
      for (int i = 0; i < Pairs; ++i) w[i] = 0;
      if (row < x.m && mine < x.k) read_words<false>(w, a + row * x.a_stride + mine);
    }
  }
  // As the matrix instruction has them.
  TW_GPU void give(uint32_t (&to)[Pairs]) const {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) to[i] = S::FewLines ? turn_matrix(w[i]) : w[i];
  }
};

// What a thread has under way, in two slots, of a B whose k is contiguous.
template <class S> struct SkinnyByK {
  static constexpr int step = 64;  // k of one turn: two 16-byte pieces a thread and row
  const SkinnyArgs &x;
  const uint16_t *a, *b, *b_up;
  const int first, few, quad, line;
  uint32_t w[2][S::RowTiles][2][2][4];
  Few<S, 4> t[2][S::TokenTiles][2];

  static constexpr bool cuts = false;
  TW_GPU bool cut() const { return false; }
  template <bool> TW_GPU void load(int slot, int turn) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int k = turn * step + half * 32 + quad * 8;
#pragma unroll
      for (int i = 0; i < S::RowTiles; ++i)
#pragma unroll
        for (int up = 0; up < 2; ++up) {
          int row = first + (S::Dual ? i * 8 : i * 16 + up * 8) + line;
          uint32_t (&to)[4] = w[slot][i][up][half];
          to[0] = to[1] = to[2] = to[3] = 0;
          if (row < x.n && k < x.k) read_words<true>(to, (S::Dual && up ? b_up : b) + row * x.b_stride + k);
        }
#pragma unroll
      for (int j = 0; j < S::TokenTiles; ++j) t[slot][j][half].load(x, a, few + j * 8, k - quad * 8, quad, line);
    }
  }
  TW_GPU void multiply(float (&d)[S::RowTiles][S::TokenTiles][4], int slot) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t few[S::TokenTiles][4];
#pragma unroll
      for (int j = 0; j < S::TokenTiles; ++j) t[slot][j][half].give(few[j]);
#pragma unroll
      for (int i = 0; i < S::RowTiles; ++i) {
        const uint32_t (&low)[4] = w[slot][i][0][half], (&high)[4] = w[slot][i][1][half];
        const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
        for (int j = 0; j < S::TokenTiles; ++j) {
          mma(d[i][j], one, few[j], typename S::In{}, typename S::In{});
          mma(d[i][j], two, few[j] + 2, typename S::In{}, typename S::In{});
        }
      }
    }
  }
  // The row of the block that a thread's accumulators of row tile i, upper or lower, belong to.
  TW_GPU int row(int i, int up) const { return i * 16 + line + up * 8; }
};

// The same of a B whose lines are contiguous: a word is two lines of one k, so tile i has every thread's word i.
template <class S> struct SkinnyByLines {
  static constexpr int groups = 2, step = 16 * groups, words = S::RowTiles;
  static_assert(words == 2 || words == 4, "eight or sixteen bytes of lines");
  const SkinnyArgs &x;
  const uint16_t *a, *b, *b_up;
  const int first, few, quad, line;
  uint32_t w[2][groups][4][words];
  Few<S, 2> t[2][groups][S::TokenTiles];

  static constexpr bool cuts = true;
  // Whether the matrix ends within some thread's lines.
  TW_GPU bool cut() const { return x.n - first < S::rows && x.n % (2 * words) != 0; }
  template <bool Cut> TW_GPU void lines(uint32_t (&to)[words], const uint16_t *p, int left, bool there) const {
    const bool whole = there && left >= (Cut ? 2 * words : 1);
#pragma unroll
    for (int i = 0; i < words; ++i) to[i] = 0;
    if (whole) read_words<true>(to, p);
    if constexpr (Cut) {
      if (there && !whole)
#pragma unroll
        for (int i = 0; i < words; ++i) {  // one by one
          if (2 * i < left) to[i] = p[2 * i];
          if (2 * i + 1 < left) to[i] |= uint32_t(p[2 * i + 1]) << 16;
        }
    }
  }
  template <bool Cut> TW_GPU void load(int slot, int turn) {
    const int here = first + line * 2 * words, k0 = turn * step + quad * 4;
    const long long stride = x.b_stride;
    const uint16_t *p = b + k0 * stride + here;
#pragma unroll
    for (int g = 0; g < groups; ++g, p += 12 * stride) {
      const int k = k0 + g * 16;
#pragma unroll
      for (int i = 0; i < 4; ++i, p += stride) lines<Cut>(w[slot][g][i], p, x.n - here, k < x.k);
#pragma unroll
      for (int j = 0; j < S::TokenTiles; ++j) t[slot][g][j].load(x, a, few + j * 8, k - quad * 4, quad, line);
    }
  }
  TW_GPU void multiply(float (&d)[S::RowTiles][S::TokenTiles][4], int slot) const {
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      uint32_t few[S::TokenTiles][2];
#pragma unroll
      for (int j = 0; j < S::TokenTiles; ++j) t[slot][g][j].give(few[j]);
#pragma unroll
      for (int i = 0; i < words; ++i) {
        const uint32_t (&v)[4][words] = w[slot][g];
        const uint32_t four[4] = {permute(v[0][i], v[1][i], 0x5410), permute(v[0][i], v[1][i], 0x7632),
                                  permute(v[2][i], v[3][i], 0x5410), permute(v[2][i], v[3][i], 0x7632)};
#pragma unroll
        for (int j = 0; j < S::TokenTiles; ++j) mma(d[i][j], four, few[j], typename S::In{}, typename S::In{});
      }
    }
  }
  TW_GPU int row(int i, int up) const { return line * 2 * words + 2 * i + up; }
};

template <class S, bool ManyLines> struct skinny_loads {
  using type = SkinnyByK<S>;
};
template <class S> struct skinny_loads<S, true> {
  using type = SkinnyByLines<S>;
};

// A warp's share of k, and what the block makes of all shares.  Once: a turn of each warp is all there is, and nothing
// lies between its instructions, each of which a short problem waits for.
template <class S, class Config, bool Cut, bool Once, class Loads>
TW_GPU void skinny_multiply(const SkinnyArgs &x, Loads &loads, int warp, int turns) {
  SkinnyAccumulators<S> &accum = *reinterpret_cast<SkinnyAccumulators<S> *>(dynamic_shared());
  float d[S::RowTiles][S::TokenTiles][4] = {};
  if (Once) {
    loads.template load<Cut>(0, warp);  // zeros beyond k
    loads.multiply(d, 0);
  } else {
    if (warp < turns) loads.template load<Cut>(0, warp);
    for (int turn = warp; turn < turns; turn += 2 * S::Warps) {
      if (turn + S::Warps < turns) loads.template load<Cut>(1, turn + S::Warps);
      loads.multiply(d, 0);
      if (turn + 2 * S::Warps < turns) loads.template load<Cut>(0, turn + 2 * S::Warps);
      if (turn + S::Warps < turns) loads.multiply(d, 1);
    }
  }
#pragma unroll
  for (int i = 0; i < S::RowTiles; ++i)
#pragma unroll
    for (int j = 0; j < S::TokenTiles; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q)
        store_shared(&accum[warp][loads.row(i, q / 2)][j * 8 + loads.quad * 2 + q % 2], d[i][j][q]);
  block_barrier();
  skinny_leave<S, Config>(x, accum, loads.first, loads.few);
}

template <class S, class Config> TW_GPU void gemm_skinny(const SkinnyArgs &x) {
  using Loads = typename skinny_loads<S, S::ManyLines>::type;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4, line = lane / 4;
  const int first = blockIdx.x * S::many, turns = (x.k + Loads::step - 1) / Loads::step;
  auto *b = static_cast<const uint16_t *>(x.b) + blockIdx.y * x.b_batch;
  auto *a = static_cast<const uint16_t *>(x.a) + blockIdx.y * x.a_batch;
  auto *b_up = S::Dual ? static_cast<const uint16_t *>(x.b_up) + blockIdx.y * x.b_batch : nullptr;
  stay(a), stay(b);
  if constexpr (S::Dual) stay(b_up);
  Loads loads{x, a, b, b_up, first, S::Tiled ? int(blockIdx.z) * S::tokens : 0, quad, line, {}, {}};
  if constexpr (S::Tiled) {
    int once = turns <= S::Warps && !(Loads::cuts && loads.cut());
    stay(once);
    if (__builtin_expect(once, 1)) return skinny_multiply<S, Config, false, true>(x, loads, warp, turns);
  }
  if constexpr (Loads::cuts) {
    // What is seldom needed has code of its own, behind the rest: loads among branches come one after the other.
    int plain = !loads.cut();
    stay(plain);
    if (__builtin_expect(plain != 0, 1)) skinny_multiply<S, Config, false, false>(x, loads, warp, turns);
    else skinny_multiply<S, Config, true, false>(x, loads, warp, turns);
  } else {
    skinny_multiply<S, Config, false, false>(x, loads, warp, turns);
  }
}

}  // namespace tw
