// The direct pipeline, for small problems: B is read where it lies (row-major), A too when it is
// fp32 and row-major, else it is turned into words once.  No cache blocks: k runs through.
#pragma once
#include <tilewright/cpu/gemm/packed/kernel.h>

namespace tw {

template <class Config> struct GemmDirect {
  using A = typename Config::A;
  using B = typename Config::B;
  using D = tw::Dot<A, B>;
  using End = Finish<Config>;
  using Sum = typename End::Sum;
  static constexpr int MR = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr bool a_in_place = same<A, fp32>::value && Config::a_rows && D::step == 1;
  static_assert(Config::b_rows && !D::offset, "the direct pipeline reads row-major B of a type without an offset");
  static_assert(D::step == Config::warp_tile_k, "the spec's warp_tile_k is not what this ISA multiplies at once");

  static TW_INLINE int64_t a_words(const tw_gemm_args &x) { return up((x.k + D::step - 1) / D::step, lanes) + lanes; }
  static TW_INLINE int64_t slot_words(const tw_gemm_args &x) {
    int64_t words = MR * NR + (up(x.k, D::step) * NR * int64_t(sizeof(B)) + 3) / 4;
    if (!a_in_place) words += up(x.m, MR) * a_words(x);
    return up(words, 16);
  }
  static int64_t workspace(const tw_gemm_args &x, int64_t threads) {
    return slot_words(x) * useful(x, threads) * 4 + 64;
  }

  static TW_INLINE int64_t useful(const tw_gemm_args &x, int64_t threads) {
    return GemmPacked<Config, false>::useful(x, threads);
  }

  // Rows x Vectors of accumulators straight from memory.
  template <int Rows, int Vectors, class To>
  static __attribute__((noinline)) void block(int64_t depth, const uint32_t *__restrict a, int64_t a_stride,
                                              const B *__restrict b, int64_t ldb, To *__restrict out, int64_t ldo,
                                              int64_t columns_out = Vectors * lanes) {
    typename D::Sum accum[Rows][Vectors];
    // The results' lines are far away; prefetch them now, they are needed when k has gone by.
#pragma GCC unroll 32
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        __builtin_prefetch(out + i * ldo + v * lanes, 1, 3);
        accum[i][v] = D::zero();
      }
    int64_t groups = depth / D::step;
    for (int64_t g = 0; g < groups; ++g) {
      vu columns[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) columns[v] = held(D::across(b + g * D::step * ldb + v * lanes, ldb));
#pragma GCC unroll 32
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) accum[i][v] = D::mac(accum[i][v], splat(a[i * a_stride + g]), columns[v]);
    }
    if (D::step > 1 && depth % D::step)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        vu tail = words_across<D>(b + groups * D::step * ldb + v * lanes, ldb, lanes, depth % D::step);
#pragma GCC unroll 32
        for (int i = 0; i < Rows; ++i) accum[i][v] = D::mac(accum[i][v], splat(a[i * a_stride + groups]), tail);
      }
#pragma GCC unroll 32
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v)
        put_sums(out + i * ldo + v * lanes, accum[i][v], v + 1 < Vectors ? lanes : columns_out - v * lanes);
  }

  // All rows of a column panel: whole register blocks, then halves of them for what is left.
  template <int Rows, int Vectors>
  static TW_INLINE void panel(const tw_gemm_args &x, int64_t z, int64_t i, int64_t m1, int64_t j, int64_t columns,
                              const uint32_t *a, int64_t a_stride, const B *b, int64_t ldb, uint32_t *scratch) {
    for (; i + Rows <= m1; i += Rows, a += Rows * a_stride) {
      if ((masks_columns || columns >= Vectors * lanes) && End::plain(x)) {
        auto *e = reinterpret_cast<uint32_t *>(End::row(x, z, i, j).e);
        block<Rows, Vectors>(x.k, a, a_stride, b, ldb, e, x.e_stride, columns);
        continue;
      }
      if constexpr (End::may_round && Rows == MR)
        if (End::only_rounded(x)) {
          block<Rows, Vectors>(x.k, a, a_stride, b, ldb, End::row(x, z, i, j).e, x.e_stride, columns);
          continue;
        }
      block<Rows, Vectors>(x.k, a, a_stride, b, ldb, scratch, NR);
      for (int64_t r = 0; r < Rows; ++r)
        End::store(x, End::row(x, z, i + r, j), reinterpret_cast<Sum *>(scratch + r * NR), columns);
    }
    if constexpr (Rows > 1) {
      constexpr int half = Rows > 8 ? 8 : Rows > 4 ? 4 : Rows > 2 ? 2 : 1;
      if (i < m1) panel<half, Vectors>(x, z, i, m1, j, columns, a, a_stride, b, ldb, scratch);
    }
  }

  static void rectangle(const tw_gemm_args &x, int64_t z, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                        uint32_t *slot) {
    const A *a = static_cast<const A *>(x.a) + z * x.a_batch_stride;
    const B *b = static_cast<const B *>(x.b) + z * x.b_batch_stride;
    uint32_t *scratch = slot;
    B *edge = reinterpret_cast<B *>(slot + MR * NR);
    const uint32_t *words;
    int64_t stride;
    if constexpr (a_in_place) {
      words = reinterpret_cast<const uint32_t *>(a + m0 * x.a_stride);
      stride = x.a_stride;
    } else {
      uint32_t *packed = slot + MR * NR + (up(x.k, D::step) * NR * int64_t(sizeof(B)) + 3) / 4;
      stride = a_words(x);
      pack_a<D, Config::a_rows>(Config::a_rows ? a + m0 * x.a_stride : a + m0, x.a_stride, m1 - m0, m1 - m0, x.k,
                                packed, stride);
      words = packed;
    }
    // Some rows at a time, all columns of them: the rows of A stay near, and so do the pages of E.
    int64_t some = most(8 * MR, least(24 * MR, (48 << 10) / most(1, x.k) / MR * MR));
    for (int64_t i = m0; i < m1; i += some)
      for (int64_t j = n0; j < n1; j += NR) {
        int64_t columns = least(NR, n1 - j), ldb = x.b_stride;
        const B *at = b + j;
        if (columns < NR) {  // the last columns are copied out, so that whole vectors may be read
          if (i == m0) copy_out(at, ldb, x.k, columns, edge);
          at = edge;
          ldb = NR;
        }
        with_fixed<vectors>((columns + lanes - 1) / lanes, [&](auto v) {
          panel<MR, decltype(v)::value>(x, z, i, least(m1, i + some), j, columns, words + (i - m0) * stride, stride, at,
                                        ldb, scratch);
        });
      }
  }

  // `columns` columns of B, filled up with zeros to whole vectors, rows NR apart.
  static __attribute__((noinline)) void copy_out(const B *from, int64_t ld, int64_t depth, int64_t columns, B *to) {
    [[maybe_unused]] int64_t width = up(columns, lanes);
    for (int64_t k = 0; k < depth; ++k) {
      if constexpr (sizeof(B) == 4) {
        for (int64_t t = 0; t < columns; t += lanes)
          store_u(to + k * NR + t, load_words(from + k * ld + t, columns - t));
      } else {
        __builtin_memcpy(to + k * NR, from + k * ld, size_t(columns) * sizeof(B));
        __builtin_memset(to + k * NR + columns, 0, size_t(width - columns) * sizeof(B));
      }
    }
  }

  static int launch(const tw_gemm_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<uint32_t *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream)), slot = slot_words(x);
    Grid g = GemmPacked<Config, true>::finer(x, GemmPacked<Config, true>::grid(x, threads), threads);
    int64_t per_matrix = g.m * g.n, items = x.batch * per_matrix;
    int64_t m_share = up((x.m + g.m - 1) / g.m, MR), n_share = up((x.n + g.n - 1) / g.n, NR);
    share_out(stream, threads, items, [&](int64_t worker, int64_t item) {
      int64_t z = item / per_matrix, part = item % per_matrix;
      int64_t m0 = least(x.m, g.row(part) * m_share), n0 = least(x.n, g.column(part) * n_share);
      int64_t m1 = least(x.m, m0 + m_share), n1 = least(x.n, n0 + n_share);
      if (m0 < m1 && n0 < n1) rectangle(x, z, m0, m1, n0, n1, base + worker * slot);
    });
    return TW_OK;
  }
};

}  // namespace tw
