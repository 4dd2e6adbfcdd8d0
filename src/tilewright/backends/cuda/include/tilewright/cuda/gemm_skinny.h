// The skinny pipeline: a handful of rows of A against a large k-contiguous B, at the speed of memory.
//
// Rows of B go from memory straight into the registers of mma.sync, 16 bytes a thread: the order of
// k inside a matrix instruction does not matter as long as both operands use the same, so each
// thread takes eight neighbouring k of its row.  The warps of a block share its rows of B and split
// k; their sums are added in shared memory, warp after warp.
#pragma once
#include <tilewright/cuda/skinny_shape.h>

namespace tw {

TW_GPU void mma_16x8x16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                        bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
TW_GPU void mma_16x8x16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                        fp16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Sixteen bytes that are read once and not kept.
TW_GPU uint4 read_once(const void *p, bool there) {
  uint4 v = {0, 0, 0, 0};
  if (there)
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  return v;
}

// What the warps of a block summed up, added and stored.
// Config: C (the output type), D, epilogue, num_d.
template <class S, class Config>
TW_GPU void skinny_leave(const SkinnyArgs &x, const float (&sums)[S::Warps][S::rows][S::tokens + 1], int first) {
  const Finish<Config> finish(x.finish);
  auto *e = static_cast<typename Config::C *>(x.e) + blockIdx.y * x.e_batch;
  for (int at = threadIdx.x; at < S::rows * S::tokens; at += S::threads) {
    int token = at / S::rows, row = at % S::rows, many = first + row;
    if (token >= x.m || many >= x.n) continue;
    float total = 0;
#pragma unroll
    for (int u = 0; u < S::Warps; ++u) total += sums[u][row][token];
    if constexpr (S::Swapped) e[many * x.e_stride + token] = finish(total, blockIdx.y, many, token);
    else e[token * x.e_stride + many] = finish(total, blockIdx.y, token, many);
  }
}

template <class S, class Config> TW_GPU void gemm_skinny(const SkinnyArgs &x) {
  __shared__ float sums[S::Warps][S::rows][S::tokens + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4, line = lane / 4;
  const int first = blockIdx.x * S::rows;
  auto *b = static_cast<const uint16_t *>(x.b) + blockIdx.y * x.b_batch;
  auto *a = static_cast<const uint16_t *>(x.a) + blockIdx.y * x.a_batch;
  constexpr int block = 64;  // k of one turn: two 16-byte pieces a thread and row
  const int turns = (x.k + block - 1) / block;
  float d[S::RowTiles][S::TokenTiles][4] = {};
  uint4 w[2][S::RowTiles][2][2], t[2][S::TokenTiles][2];
  auto load = [&](int slot, int turn) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int k = turn * block + half * 32 + quad * 8;
#pragma unroll
      for (int i = 0; i < S::RowTiles; ++i)
#pragma unroll
        for (int up = 0; up < 2; ++up) {
          int row = first + i * 16 + up * 8 + line;
          w[slot][i][up][half] = read_once(b + row * x.b_stride + k, row < x.n && k < x.k);
        }
#pragma unroll
      for (int j = 0; j < S::TokenTiles; ++j) {
        int row = j * 8 + line;
        t[slot][j][half] =
            row < x.m && k < x.k ? __ldg(reinterpret_cast<const uint4 *>(a + row * x.a_stride + k)) : uint4{0, 0, 0, 0};
      }
    }
  };
  auto multiply = [&](int slot) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < S::RowTiles; ++i) {
        uint4 low = w[slot][i][0][half], high = w[slot][i][1][half];
#pragma unroll
        for (int j = 0; j < S::TokenTiles; ++j) {
          uint4 v = t[slot][j][half];
          mma_16x8x16(d[i][j], low.x, high.x, low.y, high.y, v.x, v.y, typename S::In{});
          mma_16x8x16(d[i][j], low.z, high.z, low.w, high.w, v.z, v.w, typename S::In{});
        }
      }
  };
  if (warp < turns) load(0, warp);
  for (int turn = warp; turn < turns; turn += 2 * S::Warps) {
    if (turn + S::Warps < turns) load(1, turn + S::Warps);
    multiply(0);
    if (turn + 2 * S::Warps < turns) load(0, turn + 2 * S::Warps);
    if (turn + S::Warps < turns) multiply(1);
  }
#pragma unroll
  for (int i = 0; i < S::RowTiles; ++i)
#pragma unroll
    for (int j = 0; j < S::TokenTiles; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) sums[warp][i * 16 + line + q / 2 * 8][j * 8 + quad * 2 + q % 2] = d[i][j][q];
  __syncthreads();
  skinny_leave<S, Config>(x, sums, first);
}

}  // namespace tw
