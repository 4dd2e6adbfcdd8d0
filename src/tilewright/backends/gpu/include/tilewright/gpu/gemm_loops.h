// The plain loops: any element types, layouts, strides, alignment and batch.  A block of 256
// threads makes 64 x 64 results; 16 k at a time go through shared memory as floats (int8: as ints).
// Plain on purpose: it is the floor under every problem the others do not take.
#pragma once
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct LoopsArgs {
  long long m, n, k, batch;
  long long tiles_m, tiles_n;
  const void *a, *b, *b_up;  // b_up: the second B of a dual kernel
  void *e;
  long long a_stride, b_stride, e_stride, a_batch, b_batch, e_batch;
  EpilogueArgs finish;
};

struct Loops {
  static constexpr int tile = 64, deep = 16, threads = 256, each = 4;
};

#ifdef TW_ON_GPU

template <class T> TW_GPU auto widen(T x) {
  if constexpr (is_integer<T>::value) return int32_t(x);
  else return to_float(x);
}

// `tile` lines (rows of A or columns of B) by `deep` k into shared memory; lanes run along the
// contiguous direction.  Outside the matrix: zeros.
template <bool KContiguous, class T, class Sum> TW_GPU void stage(const T *from, long long stride, long long lines,
                                                                  long long line0, long long k, long long k0,
                                                                  Sum (&to)[Loops::deep][Loops::tile + 1]) {
  constexpr int count = Loops::tile * Loops::deep / Loops::threads;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    int at = threadIdx.x + i * Loops::threads;
    int line = KContiguous ? at / Loops::deep : at % Loops::tile,
        depth = KContiguous ? at % Loops::deep : at / Loops::tile;
    long long l = line0 + line, d = k0 + depth;
    bool inside = l < lines && d < k;
    to[depth][line] = inside ? widen(from[KContiguous ? l * stride + d : d * stride + l]) : Sum(0);
  }
}

// Config: A, B, a_rows, b_rows and what Finish needs.
template <class Config> TW_GPU void gemm_loops(const LoopsArgs &x) {
  using G = Loops;
  using Sum = typename sum_of<typename Config::A>::type;
  constexpr bool dual = Finish<Config>::dual;
  __shared__ Sum a[G::deep][G::tile + 1], b[1 + dual][G::deep][G::tile + 1];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const Finish<Config> finish(x.finish);
  const long long tiles = x.tiles_m * x.tiles_n * x.batch;
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    long long z = tile / (x.tiles_m * x.tiles_n), inside = tile % (x.tiles_m * x.tiles_n);
    long long row0 = inside / x.tiles_n * G::tile, column0 = inside % x.tiles_n * G::tile;
    auto *from_a = static_cast<const typename Config::A *>(x.a) + z * x.a_batch;
    auto *from_b = static_cast<const typename Config::B *>(x.b) + z * x.b_batch;
    auto *from_up = static_cast<const typename Config::B *>(x.b_up) + z * x.b_batch;
    Sum accum[1 + dual][G::each][G::each] = {};
    for (long long k0 = 0; k0 < x.k; k0 += G::deep) {
      stage<Config::a_rows>(from_a, x.a_stride, x.m, row0, x.k, k0, a);
      stage<!Config::b_rows>(from_b, x.b_stride, x.n, column0, x.k, k0, b[0]);
      if constexpr (dual) stage<!Config::b_rows>(from_up, x.b_stride, x.n, column0, x.k, k0, b[1]);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < G::deep; ++k) {
        Sum left[G::each];
#pragma unroll
        for (int i = 0; i < G::each; ++i) left[i] = a[k][ty + 16 * i];
#pragma unroll
        for (int which = 0; which < 1 + dual; ++which) {
          Sum right[G::each];
#pragma unroll
          for (int i = 0; i < G::each; ++i) right[i] = b[which][k][tx + 16 * i];
#pragma unroll
          for (int i = 0; i < G::each; ++i)
#pragma unroll
            for (int j = 0; j < G::each; ++j) accum[which][i][j] += left[i] * right[j];
        }
      }
      __syncthreads();
    }
    auto *e = static_cast<typename Config::C *>(x.e) + z * x.e_batch;
#pragma unroll
    for (int i = 0; i < G::each; ++i)
#pragma unroll
      for (int j = 0; j < G::each; ++j) {
        long long row = row0 + ty + 16 * i, column = column0 + tx + 16 * j;
        if (row >= x.m || column >= x.n) continue;
        if constexpr (dual) e[row * x.e_stride + column] = finish.both(accum[0][i][j], accum[1][i][j]);
        else e[row * x.e_stride + column] = finish(accum[0][i][j], z, row, column);
      }
  }
}

#endif
}  // namespace tw
