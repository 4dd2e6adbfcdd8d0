// The gemv pipeline, for m or n of at most a few: one operand is a handful of vectors, the other a
// matrix that is read once, at the speed of memory.
//
// If the matrix lies k-contiguous, each of its lines is multiplied with every vector lane by lane
// and folded at the end; otherwise lines of k add up into sums that stay in the first-level cache.
#pragma once
#include <tilewright/cpu/gemm_packed.h>

namespace tw {

template <class Config> struct GemmGemv {
  using A = typename Config::A;
  using B = typename Config::B;
  using D = tw::Dot<A, B>;
  using End = Finish<Config>;
  using Sum = typename End::Sum;
  using V = typename D::Sum;
  static constexpr int R = Config::warp_tile_m;  // vectors held
  // A dot product with an offset gets one more vector, of ones: its sums take the offset out.
  static constexpr int RR = R + (D::offset ? 1 : 0);
  static constexpr int64_t span = Config::tile_n;  // sums of one vector kept at a time

  static TW_INLINE int64_t stride(const tw_gemm_args &x) { return up((x.k + D::step - 1) / D::step, lanes) + lanes; }
  static int64_t workspace(const tw_gemm_args &x, int64_t threads) {
    return (x.batch * RR * stride(x) + threads * RR * (span + lanes)) * 4 + 128;
  }

  // ---- k-contiguous matrix: lines [l0, l1) against the vectors, sums to out[r * span + l - l0] ----
  template <int Lines, class T>
  static TW_INLINE void fold(const T *matrix, int64_t ld, const uint32_t *vectors, int64_t stride, int64_t depth, Sum *out) {
    V sums[Lines][RR];
#pragma GCC unroll 8
    for (int l = 0; l < Lines; ++l)
#pragma GCC unroll 8
      for (int r = 0; r < RR; ++r) sums[l][r] = D::zero();
    int64_t g = 0;
    for (; (g + lanes) * D::step <= depth; g += lanes) {
      vu words[Lines];
#pragma GCC unroll 8
      for (int l = 0; l < Lines; ++l) words[l] = D::along_k(matrix + l * ld + g * D::step);
#pragma GCC unroll 8
      for (int r = 0; r < RR; ++r) {
        vu vector = load_u(vectors + r * stride + g);
#pragma GCC unroll 8
        for (int l = 0; l < Lines; ++l) sums[l][r] = D::mac(sums[l][r], vector, words[l]);
      }
    }
    if (g * D::step < depth)
      for (int l = 0; l < Lines; ++l) {
        vu words = words_along<D>(matrix + l * ld + g * D::step, depth - g * D::step);
        for (int r = 0; r < RR; ++r) sums[l][r] = D::mac(sums[l][r], load_u(vectors + r * stride + g), words);
      }
#pragma GCC unroll 8
    for (int l = 0; l < Lines; ++l)
#pragma GCC unroll 8
      for (int r = 0; r < RR; ++r) out[r * span + l] = sum_lanes(sums[l][r]);
  }
  template <class T>
  static __attribute__((noinline)) void fold_lines(const T *matrix, int64_t ld, int64_t lines, const uint32_t *vectors,
                                                   int64_t stride, int64_t depth, Sum *out) {
    constexpr int at_once = RR <= 1 ? 8 : 4;
    int64_t l = 0;
    for (; l + at_once <= lines; l += at_once) fold<at_once>(matrix + l * ld, ld, vectors, stride, depth, out + l);
    for (; l < lines; ++l) fold<1>(matrix + l * ld, ld, vectors, stride, depth, out + l);
  }

  // ---- line-contiguous matrix: k lines of `count` elements add into out[r * span + l] -------------
  template <int Deep, class T>
  static TW_INLINE void add_lines(const T *matrix, int64_t ld, int64_t count, const uint32_t *vectors, int64_t stride,
                                  int64_t g, Sum *out) {
    for (int64_t l = 0; l < count; l += lanes) {
      vu words[Deep];
#pragma GCC unroll 8
      for (int u = 0; u < Deep; ++u) words[u] = D::across(matrix + (g + u) * D::step * ld + l, ld);
#pragma GCC unroll 8
      for (int r = 0; r < RR; ++r) {
        V sum = V(load_u(out + r * span + l));
#pragma GCC unroll 8
        for (int u = 0; u < Deep; ++u) sum = D::mac(sum, splat(vectors[r * stride + g + u]), words[u]);
        store_u(out + r * span + l, vu(sum));
      }
    }
  }
  template <class T>
  static __attribute__((noinline)) void add_up(const T *matrix, int64_t ld, int64_t count, const uint32_t *vectors,
                                               int64_t stride, int64_t depth, Sum *out) {
    constexpr int deep = 8;
    for (int r = 0; r < RR; ++r) __builtin_memset(out + r * span, 0, size_t(up(count, lanes)) * 4);
    int64_t whole = count / lanes * lanes, groups = depth / D::step, g = 0;
    for (; g + deep <= groups; g += deep) add_lines<deep>(matrix, ld, whole, vectors, stride, g, out);
    for (; g < groups; ++g) add_lines<1>(matrix, ld, whole, vectors, stride, g, out);
    // What is left of the lines, then what is left of k.
    for (int64_t l = 0; l < count; l += lanes) {
      int64_t from = l < whole ? groups : 0;
      for (g = from; g * D::step < depth; ++g) {
        vu words = words_across<D>(matrix + g * D::step * ld + l, ld, count - l, depth - g * D::step);
        for (int r = 0; r < RR; ++r)
          store_u(out + r * span + l, vu(D::mac(V(load_u(out + r * span + l)), splat(vectors[r * stride + g]), words)));
      }
    }
  }

  // ---- the kernel ---------------------------------------------------------------------------
  // Few: vectors are rows of A and the matrix is B; otherwise vectors are columns of B.
  template <bool RowsOfA> static int run(const tw_gemm_args &x, uint32_t *base, void *stream) {
    using Matrix = typename choose<RowsOfA, B, A>::type;
    using Vector = typename choose<RowsOfA, A, B>::type;
    constexpr bool vector_k = RowsOfA ? Config::a_rows : !Config::b_rows;
    constexpr bool matrix_k = RowsOfA ? !Config::b_rows : Config::a_rows;
    int64_t few = RowsOfA ? x.m : x.n, many = RowsOfA ? x.n : x.m, row = stride(x);
    auto *vectors = static_cast<const Vector *>(RowsOfA ? x.a : x.b);
    int64_t vector_ld = RowsOfA ? x.a_stride : x.b_stride, matrix_ld = RowsOfA ? x.b_stride : x.a_stride;
    int64_t vector_batch = RowsOfA ? x.a_batch_stride : x.b_batch_stride;
    int64_t matrix_batch = RowsOfA ? x.b_batch_stride : x.a_batch_stride;
    // Zeros behind the last k: whatever is there gets multiplied with zeros of the matrix.
    __builtin_memset(base, 0, size_t(x.batch * RR * row) * 4);
    for (int64_t z = 0; z < x.batch; ++z) {
      uint32_t *to = base + z * RR * row;
      pack_a<D, vector_k>(vectors + z * vector_batch, vector_ld, few, R, x.k, to, row);
      if (D::offset)
        for (int64_t g = 0; g < row; ++g) to[R * row + g] = 0x01010101u;
    }
    uint32_t *slots = base + up(x.batch * RR * row, 16);
    int64_t threads = team_size(stream), pieces = threads;
    if (double(many) * double(x.k) * double(x.batch) < 65536.0) pieces = 1;
    int64_t share = least(span, up((many * x.batch + pieces - 1) / pieces, lanes));
    share = least(share, up(many, lanes));
    int64_t blocks = (many + share - 1) / share, items = blocks * x.batch, workers = least(pieces, items);
    parallel(stream, workers, [&](int64_t worker) {
      Sum *sums = reinterpret_cast<Sum *>(slots + worker * RR * (span + lanes));
      // Neighbouring blocks to one worker: long straight reads.
      for (int64_t item = worker * items / workers; item < (worker + 1) * items / workers; ++item) {
        int64_t z = item / blocks, l0 = item % blocks * share, count = least(share, many - l0);
        const Matrix *matrix = static_cast<const Matrix *>(RowsOfA ? x.b : x.a) + z * matrix_batch;
        const uint32_t *words = base + z * RR * row;
        if constexpr (matrix_k) fold_lines(matrix + l0 * matrix_ld, matrix_ld, count, words, row, x.k, sums);
        else add_up(matrix + l0, matrix_ld, count, words, row, x.k, sums);
        if constexpr (D::offset)
          for (int64_t r = 0; r < few; ++r)
            for (int64_t l = 0; l < count; ++l)
              sums[r * span + l] = Sum(uint32_t(sums[r * span + l]) - 128u * uint32_t(sums[R * span + l]));
        if constexpr (RowsOfA) {
          for (int64_t r = 0; r < few; ++r) End::store(x, End::row(x, z, r, l0), sums + r * span, count);
        } else {
          for (int64_t l = 0; l < count; ++l) {
            Sum line[lanes] = {};
            for (int64_t r = 0; r < few; ++r) line[r] = sums[r * span + l];
            End::store(x, End::row(x, z, l0 + l, 0), line, few);
          }
        }
      }
    });
    return TW_OK;
  }

  static int launch(const tw_gemm_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<uint32_t *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    return x.m <= R ? run<true>(x, base, stream) : run<false>(x, base, stream);
  }
};

}  // namespace tw
