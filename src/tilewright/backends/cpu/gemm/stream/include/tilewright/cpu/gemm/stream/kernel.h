// The stream and gemv pipelines, for few rows or few columns: one operand is a handful of vectors,
// the other a matrix that is read once, where it lies, at the speed of memory.
//
// If the matrix lies k-contiguous, its lines are multiplied with the vectors lane by lane and the
// lanes folded at the end; otherwise lines of k add up into accumulators that stay in the first-level cache.
#pragma once
#include <tilewright/cpu/gemm/packed/kernel.h>

namespace tw {

template <class Config> struct GemmStream {
  using A = typename Config::A;
  using B = typename Config::B;
  using D = tw::Dot<A, B>;
  using End = Finish<Config>;
  using Sum = typename End::Sum;
  using V = typename D::Sum;
  static constexpr int64_t most_vectors = Config::tile_m;
  // A dot product with an offset gets one more vector, of ones: its accumulators take the offset out.
  static constexpr int extra = D::offset ? 1 : 0;
  static constexpr int64_t span_most = Config::tile_n;  // accumulators of one vector kept at a time
  static constexpr int64_t accum_bytes = 32 << 10;      // what they may take of the first-level cache
  static constexpr int lines_at_once = vector_bytes == 64 ? 8 : 4;
  static constexpr int rows_at_once = vector_bytes == 64 ? 3 : 2;
  static constexpr int deep = 8;                      // lines of k added in one go
  static constexpr int64_t k_block = Config::tile_k;  // k elements of a fold between two stores of its accumulators
  static_assert(k_block % (lanes * D::step) == 0, "tile_k must be whole vectors of words");

  static TW_INLINE int64_t stride(const tw_gemm_args &x) { return up((x.k + D::step - 1) / D::step, lanes) + lanes; }
  static TW_INLINE int64_t rows(const tw_gemm_args &x) { return (x.m <= most_vectors ? x.m : x.n) + extra; }
  static TW_INLINE int64_t span(int64_t rows) {
    int64_t fit = accum_bytes / 4 / rows / lanes * lanes;
    return least(span_most, most(fit, 8 * lanes));
  }
  static TW_INLINE int64_t slot_words(int64_t rows) { return rows * span(rows) + lines_at_once * rows * lanes + lanes; }
  static int64_t workspace(const tw_gemm_args &x, int64_t threads) {
    return (up(x.batch * rows(x) * stride(x), 16) + threads * up(slot_words(rows(x)), 16)) * 4 + 64;
  }

  // ---- k-contiguous matrix ------------------------------------------------------------------
  // One block of k for lines_at_once lines and Rows vectors; accumulators come from and go to `kept`.
  template <int Rows, class T> static TW_INLINE void fold(const T *const (&line)[lines_at_once],
                                                          const uint32_t *vectors, int64_t stride, int64_t depth,
                                                          bool first, bool ahead, V *kept) {
    V accum[lines_at_once][Rows];
#pragma GCC unroll 8
    for (int l = 0; l < lines_at_once; ++l)
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) accum[l][r] = first ? D::zero() : kept[l * Rows + r];
    int64_t g = 0;
    for (; (g + lanes) * D::step <= depth; g += lanes) {
      vu row[Rows];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) row[r] = load_u(vectors + r * stride + g);
#pragma GCC unroll 8
      for (int l = 0; l < lines_at_once; ++l) {
        const T *at = line[l] + g * D::step;
        if (Config::prefetch > 0 && ahead) __builtin_prefetch(at + Config::prefetch * lanes * D::step);
        vu words = held(D::along_k(at));
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) accum[l][r] = D::mac(accum[l][r], row[r], words);
      }
    }
    if (g * D::step < depth)
#pragma GCC unroll 8
      for (int l = 0; l < lines_at_once; ++l) {
        vu words = words_along_edge<D>(line[l] + g * D::step, depth - g * D::step);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) accum[l][r] = D::mac(accum[l][r], load_u(vectors + r * stride + g), words);
      }
#pragma GCC unroll 8
    for (int l = 0; l < lines_at_once; ++l)
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) kept[l * Rows + r] = accum[l][r];
  }
  template <int Rows, class T>
  static __attribute__((noinline)) void fold_rows(const T *const (&line)[lines_at_once], const uint32_t *vectors,
                                                  int64_t stride, int64_t depth, bool first, bool ahead, V *kept) {
    fold<Rows>(line, vectors, stride, depth, first, ahead, kept);
  }
  // `lines` lines of the matrix against `rows` vectors: out[r * ld_out + l].
  template <class T> static void fold_lines(const T *matrix, int64_t ld, int64_t lines, const uint32_t *vectors,
                                            int64_t stride, int64_t rows, int64_t depth, V *kept, Sum *out,
                                            int64_t ld_out) {
    for (int64_t l0 = 0; l0 < lines; l0 += lines_at_once) {
      // Past the last line the last one is read again; its accumulators are not stored.
      const T *line[lines_at_once];
      for (int l = 0; l < lines_at_once; ++l) line[l] = matrix + least(l0 + l, lines - 1) * ld;
      int64_t k = 0;
      do {
        int64_t part = least(k_block, depth - k);
        for (int64_t r = 0; r < rows; r += rows_at_once) {
          V *at = kept + r * lines_at_once;
          const uint32_t *from = vectors + r * stride + k / D::step;
          bool first = k == 0, ahead = r == 0;
          if (rows - r >= 3 && rows_at_once >= 3) fold_rows<3>(line, from, stride, part, first, ahead, at);
          else if (rows - r >= 2) fold_rows<2>(line, from, stride, part, first, ahead, at);
          else fold_rows<1>(line, from, stride, part, first, ahead, at);
        }
        for (int l = 0; l < lines_at_once; ++l) line[l] += part;
        k += part;
      } while (k < depth);
      for (int64_t r = 0; r < rows; r += rows_at_once) {
        int64_t group = least(rows_at_once, rows - r);
        for (int64_t l = 0; l < lines_at_once && l0 + l < lines; ++l)
          for (int64_t t = 0; t < group; ++t)
            out[(r + t) * ld_out + l0 + l] = sum_lanes(kept[r * lines_at_once + l * group + t]);
      }
    }
  }

  // ---- line-contiguous matrix ---------------------------------------------------------------
  // Deep word groups of `count` columns (whole vectors) times the vectors add into out[r * ld_out + l].
  template <int Rows, int Deep> static TW_INLINE void add_rows(const vu (&words)[Deep], const uint32_t *vectors,
                                                               int64_t stride, Sum *out, int64_t ld_out) {
    V accum[Rows];  // several chains of additions at once: one alone would wait for itself
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) accum[r] = V(load_u(out + r * ld_out));
#pragma GCC unroll 16
    for (int u = 0; u < Deep; ++u)
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) accum[r] = D::mac(accum[r], splat(vectors[r * stride + u]), words[u]);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) store_u(out + r * ld_out, vu(accum[r]));
  }
  template <int Deep, class T>
  static __attribute__((noinline)) void add_lines(const T *matrix, int64_t ld, int64_t count, const uint32_t *vectors,
                                                  int64_t stride, int64_t rows, Sum *out, int64_t ld_out) {
    constexpr int together = 4;
    for (int64_t l = 0; l < count; l += lanes) {
      vu words[Deep];
#pragma GCC unroll 16
      for (int u = 0; u < Deep; ++u) words[u] = D::across(matrix + u * D::step * ld + l, ld);
      int64_t r = 0;
      for (; r + together <= rows; r += together)
        add_rows<together>(words, vectors + r * stride, stride, out + r * ld_out + l, ld_out);
      for (; r < rows; ++r) add_rows<1>(words, vectors + r * stride, stride, out + r * ld_out + l, ld_out);
    }
  }
  template <class T> static void add_up(const T *matrix, int64_t ld, int64_t count, const uint32_t *vectors,
                                        int64_t stride, int64_t rows, int64_t depth, Sum *out, int64_t ld_out) {
    for (int64_t r = 0; r < rows; ++r) __builtin_memset(out + r * ld_out, 0, size_t(up(count, lanes)) * 4);
    int64_t whole = count / lanes * lanes, groups = depth / D::step, g = 0;
    for (; g + deep <= groups; g += deep)
      add_lines<deep>(matrix + g * D::step * ld, ld, whole, vectors + g, stride, rows, out, ld_out);
    for (; g < groups; ++g) add_lines<1>(matrix + g * D::step * ld, ld, whole, vectors + g, stride, rows, out, ld_out);
    // What is left of the lines, then what is left of k.
    for (int64_t l = 0; l < count; l += lanes)
      for (g = l < whole ? groups : 0; g * D::step < depth; ++g) {
        vu words = words_across<D>(matrix + g * D::step * ld + l, ld, count - l, depth - g * D::step);
        for (int64_t r = 0; r < rows; ++r) {
          Sum *to = out + r * ld_out + l;
          store_u(to, vu(D::mac(V(load_u(to)), splat(vectors[r * stride + g]), words)));
        }
      }
  }

  // ---- the kernel ---------------------------------------------------------------------------
  // RowsOfA: the vectors are rows of A and the matrix is B; otherwise they are columns of B.
  template <bool RowsOfA> static int run(const tw_gemm_args &x, uint32_t *base, void *stream) {
    using Matrix = typename choose<RowsOfA, B, A>::type;
    using Vector = typename choose<RowsOfA, A, B>::type;
    constexpr bool vector_k = RowsOfA ? Config::a_rows : !Config::b_rows;
    constexpr bool matrix_k = RowsOfA ? !Config::b_rows : Config::a_rows;
    int64_t few = RowsOfA ? x.m : x.n, many = RowsOfA ? x.n : x.m, row = stride(x), all = few + extra;
    auto *vectors = static_cast<const Vector *>(RowsOfA ? x.a : x.b);
    int64_t vector_ld = RowsOfA ? x.a_stride : x.b_stride, matrix_ld = RowsOfA ? x.b_stride : x.a_stride;
    int64_t vector_batch = RowsOfA ? x.a_batch_stride : x.b_batch_stride;
    int64_t matrix_batch = RowsOfA ? x.b_batch_stride : x.a_batch_stride;
    for (int64_t z = 0; z < x.batch; ++z) {
      uint32_t *to = base + z * all * row;
      pack_a<D, vector_k>(vectors + z * vector_batch, vector_ld, few, few, x.k, to, row);
      // Zeros behind the last k: whatever is there gets multiplied with zeros of the matrix.
      int64_t groups = (x.k + D::step - 1) / D::step;
      for (int64_t r = 0; r < few; ++r) __builtin_memset(to + r * row + groups, 0, size_t(row - groups) * 4);
      for (int64_t g = 0; extra && g < row; ++g) to[few * row + g] = 0x01010101u;
    }
    uint32_t *slots = base + up(x.batch * all * row, 16);
    int64_t slot = up(slot_words(all), 16), block = span(all);
    int64_t workers = team_size(stream);
    double work = double(many) * double(x.k) * double(few) * double(x.batch);
    if (work < 65536.0) workers = 1;
    // Each worker has one stretch of lines of the whole batch, in some pieces: long straight reads.
    int64_t pieces = workers;
    if (workers > 1) pieces = workers * most(1, least(4, int64_t(work / double(workers) / 1048576.0)));
    int64_t share = up((many * x.batch + pieces - 1) / pieces, matrix_k ? lines_at_once : lanes);
    share_out(stream, workers, pieces, [&](int64_t worker, int64_t piece) {
      Sum *accum = reinterpret_cast<Sum *>(slots + worker * slot);
      V *kept = reinterpret_cast<V *>(accum + all * block);
      int64_t end = least(many * x.batch, (piece + 1) * share);
      for (int64_t at = piece * share; at < end;) {
        int64_t z = at / many, l0 = at % many, count = least(least(block, many - l0), end - at);
        at += count;
        const Matrix *matrix = static_cast<const Matrix *>(RowsOfA ? x.b : x.a) + z * matrix_batch;
        const uint32_t *words = base + z * all * row;
        if constexpr (matrix_k)
          fold_lines(matrix + l0 * matrix_ld, matrix_ld, count, words, row, all, x.k, kept, accum, block);
        else add_up(matrix + l0, matrix_ld, count, words, row, all, x.k, accum, block);
        if constexpr (D::offset)
          for (int64_t r = 0; r < few; ++r)
            for (int64_t l = 0; l < count; ++l)
              accum[r * block + l] = Sum(uint32_t(accum[r * block + l]) - 128u * uint32_t(accum[few * block + l]));
        if constexpr (RowsOfA) {
          for (int64_t r = 0; r < few; ++r) End::store(x, End::row(x, z, r, l0), accum + r * block, count);
        } else {
          for (int64_t l = 0; l < count; ++l)
            for (int64_t r = 0; r < few; r += lanes) {
              Sum line[lanes] = {};
              int64_t some = least(lanes, few - r);
              for (int64_t t = 0; t < some; ++t) line[t] = accum[(r + t) * block + l];
              End::store(x, End::row(x, z, l0 + l, r), line, some);
            }
        }
      }
    });
    return TW_OK;
  }

  static int launch(const tw_gemm_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<uint32_t *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    return x.m <= most_vectors ? run<true>(x, base, stream) : run<false>(x, base, stream);
  }
};

}  // namespace tw
