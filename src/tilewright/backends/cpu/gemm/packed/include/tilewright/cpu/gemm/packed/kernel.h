// The packed pipeline: cache blocks of A and B are packed into words, and register blocks run over
// them.  The preshuffle pipeline is the same with a B that was packed beforehand.
//
// Threads share nothing: each has a rectangle of E and packs what it needs for it.  The order in
// which the products of one element are summed depends on the tile alone, so the result is the same
// on any number of threads.
#pragma once
#include <tilewright/cpu/epilogues/epilogue.h>
#include <tilewright/cpu/primitives/micro.h>
#include <tilewright/cpu/copies/pack.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

// How a team is laid over E: `m` by `n` rectangles (times batch, times split-k).
struct Grid {
  int64_t m, n;
  bool down = false;  // numbered down the columns, else along the rows

  TW_INLINE int64_t row(int64_t part) const { return down ? part % m : part / n; }
  TW_INLINE int64_t column(int64_t part) const { return down ? part / m : part % n; }
};

template <class Config, bool Prepacked> struct GemmPacked {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  using D = tw::Dot<A, B>;
  using End = Finish<Config>;
  using Sum = typename End::Sum;

  static constexpr int step = D::step;
  static constexpr int MR = Config::warp_tile_m, NR = Config::warp_tile_n, vectors = NR / lanes;
  static constexpr int MC = Config::tile_m, NC = Config::tile_n, KC = Config::tile_k;
  static constexpr int groups_max = KC / step;
  static constexpr int a_stride = groups_max + lanes;  // off the power of two: rows must not share cache sets
  static constexpr int panel_head = D::offset ? NR : 0;
  static constexpr int64_t chunk_rows = 8 * MC;  // rows whose accumulators are kept aside while k goes by in blocks
  static constexpr int64_t smallest_share = selection::kSmallestShare;
  static_assert(step == Config::warp_tile_k, "the spec's warp_tile_k is not what this ISA multiplies at once");
  static_assert(NR % lanes == 0 && MC % MR == 0 && NC % NR == 0 && KC % step == 0, "tiles do not divide");

  // ---- sizes -------------------------------------------------------------------------------
  static TW_INLINE int64_t slot_words(const tw_gemm_args &x) {
    int64_t n = least(up(x.n, NR), NC), m = least(up(x.m, MR), MC);
    int64_t words = m * a_stride + MR * NR;
    if (!Prepacked) words += n / NR * (panel_head + int64_t(groups_max) * NR);
    if (x.k > KC) words += least(up(x.m, MR), chunk_rows) * n;
    return up(words, 16);
  }
  static TW_INLINE int64_t partial_words(const tw_gemm_args &x) {
    return Config::split_k > 1 ? Config::split_k * x.batch * x.m * up(x.n, lanes) : 0;
  }
  static int64_t workspace(const tw_gemm_args &x, int64_t threads) {
    return (partial_words(x) + slot_words(x) * slots(x, threads)) * 4 + 64;
  }
  static TW_INLINE int64_t panel_words(int64_t k) { return panel_head + (k + step - 1) / step * NR; }
  static int64_t packed_bytes(const tw_gemm_args &x) {
    return most(1, x.b_batch_stride ? x.batch : 1) * ((x.n + NR - 1) / NR) * panel_words(x.k) * 4;
  }

  // ---- laying threads over the work ---------------------------------------------------------
  static TW_INLINE int64_t useful(const tw_gemm_args &x, int64_t threads) {
    double work = double(x.m) * double(x.n) * double(x.k + 1) * double(x.batch);
    double most_threads = work / double(smallest_share) + 1;
    return most_threads < double(threads) ? int64_t(most_threads) : threads;
  }
  // Fewest multiply-adds and packed elements for the busiest thread.
  static TW_INLINE Grid grid(const tw_gemm_args &x, int64_t threads) {
    int64_t items = x.batch * Config::split_k;
    int64_t share = (threads + items - 1) / items;  // threads for one matrix
    Grid best{1, 1, false};
    double lowest = 0;
    for (int64_t n = 1; n <= share; ++n) {
      int64_t m = share / n;
      if (m * n * 2 <= share) continue;
      double rows = double(up((x.m + m - 1) / m, MR)), columns = double(up((x.n + n - 1) / n, NR));
      double cost = rows * columns / (2.0 * lanes) +
                    columns * (Prepacked        ? 0.0
                               : Config::b_rows ? 0.15
                                                : 0.35) +
                    rows * (columns / NC + 1) * 0.15;
      if (lowest == 0 || cost < lowest) {
        lowest = cost;
        best = {m, n, false};
      }
    }
    return best;
  }
  // Each rectangle once more in pieces, so that a thread that comes late leaves the others more to do: as many as may
  // cost next to nothing, for what a rectangle shares is packed again for each of them.
  static TW_INLINE Grid finer(const tw_gemm_args &x, Grid g, int64_t threads) {
    constexpr int64_t most_pieces = 4, smallest_piece = int64_t(1) << 21;  // multiply-adds
    int64_t items = x.batch * Config::split_k * g.m * g.n, depth = x.k / Config::split_k;
    if (threads <= 1 || items >= most_pieces * threads) return g;
    double rows = double(x.m) / double(g.m), columns = double(x.n) / double(g.n), all = rows * columns / (2.0 * lanes);
    double below = columns * (Prepacked ? 0.0 : Config::b_rows ? 0.15 : 0.35), beside = rows * 0.15;
    int64_t room = int64_t(rows * columns * double(depth) / double(smallest_piece)), pieces = least(most_pieces, room);
    double each = below < beside ? below : beside, allowed = 0.02 * all;
    if (double(pieces - 1) * each > allowed) pieces = int64_t(allowed / each) + 1;
    if (pieces <= 1) return g;
    g.down = below < beside;  // pieces of one thread's rectangle follow each other
    if (g.down) g.m *= pieces;
    else g.n *= pieces;
    return g;
  }
  static TW_INLINE int64_t slots(const tw_gemm_args &x, int64_t threads) { return useful(x, threads); }

  // ---- one register block -------------------------------------------------------------------
  struct Block {
    const tw_gemm_args *x;
    int64_t z;
    bool first, last;  // of the blocks along k
    bool whole;        // accumulators may be written to `to` as they are: plain results, or partial sums
    bool rounded;      // they are the result but for its type
    Sum *to;           // element (0, 0) of E's matrix, or of the partial sums
    int64_t ld_to;
    uint32_t *scratch;  // MR x NR
  };

  template <int Vectors, class To> static TW_INLINE void run(int64_t groups, const uint32_t *a, const uint32_t *b,
                                                             const int32_t *start, const uint32_t *from, To *out,
                                                             int64_t ld_out, int64_t columns = NR) {
    if (from)
      register_block<D, MR, a_stride, Vectors, Config::unroll, Config::prefetch, true>(groups, a, b, start, from, NR,
                                                                                       out, ld_out, columns);
    else
      register_block<D, MR, a_stride, Vectors, Config::unroll, Config::prefetch, false>(groups, a, b, start, nullptr, 0,
                                                                                        out, ld_out, columns);
  }

  // The register block at row i, column j.  Between blocks of k its accumulators wait in `kept`, MR x NR in
  // one piece: E itself would be read and written once for every block of k, and its rows may all
  // fall into the same few cache sets.
  template <int Vectors> static TW_INLINE void one(const Block &t, int64_t groups, const uint32_t *a, const uint32_t *b,
                                                   const int32_t *start, uint32_t *kept, int64_t i, int64_t j,
                                                   int64_t rows, int64_t columns) {
    const uint32_t *from = t.first ? nullptr : kept;
    if (!t.last) return run<Vectors>(groups, a, b, start, from, kept, NR);
    const bool stored = rows >= MR && columns > (Vectors - 1) * lanes;  // from registers
    if (t.whole && stored && (masks_columns || columns >= Vectors * lanes))
      return run<Vectors>(groups, a, b, start, from, reinterpret_cast<uint32_t *>(t.to + i * t.ld_to + j), t.ld_to,
                          columns);
    if constexpr (End::may_round)
      if (t.rounded && stored)
        return run<Vectors>(groups, a, b, start, from, End::row(*t.x, t.z, i, j).e, t.x->e_stride, columns);
    run<Vectors>(groups, a, b, start, from, t.scratch, NR);
    for (int64_t r = 0; r < rows; ++r) {
      if (t.whole)
        for (int64_t c = 0; c < columns; c += lanes)
          store_words(t.to + (i + r) * t.ld_to + j + c, load_u(t.scratch + r * NR + c), columns - c);
      else End::store(*t.x, End::row(*t.x, t.z, i + r, j), reinterpret_cast<Sum *>(t.scratch + r * NR), columns);
    }
  }

  // ---- a panel of B --------------------------------------------------------------------------
  static constexpr int64_t panel_space = panel_head + int64_t(groups_max) * NR;
  struct Panel {
    const uint32_t *words;
    const int32_t *start;  // what its accumulators begin with
  };

  // The panel of columns from jc + j, of `depth` from pc on: packed now (`first`: just before its first use, while the
  // words are still near), or beforehand.
  template <int V> static Panel panel_at(const tw_gemm_args &x, [[maybe_unused]] const B *b,
                                         [[maybe_unused]] const uint32_t *packed, [[maybe_unused]] uint32_t *b_block,
                                         int64_t jc, int64_t j, [[maybe_unused]] int64_t n, int64_t pc,
                                         [[maybe_unused]] int64_t depth, [[maybe_unused]] bool first) {
    if constexpr (Prepacked) {
      static const int32_t nothing[NR] = {};
      const uint32_t *whole = packed + (jc + j) / NR * panel_words(x.k);
      // The totals of a prepacked panel cover all of k: they count once.
      const bool totals = D::offset && pc == 0;
      return {whole + panel_head + pc / step * NR, totals ? reinterpret_cast<const int32_t *>(whole) : nothing};
    } else {
      uint32_t *own = b_block + j / NR * panel_space;
      if (first) {
        const B *b_at = Config::b_rows ? b + pc * x.b_stride + jc + j : b + (jc + j) * x.b_stride + pc;
        pack_b<D, Config::b_rows, V>(b_at, x.b_stride, n - j, depth, own + panel_head,
                                     reinterpret_cast<int32_t *>(own));
      }
      return {own + panel_head, reinterpret_cast<const int32_t *>(own)};
    }
  }

  // ---- a rectangle of E, a range of k --------------------------------------------------------
  // `partial` is where the accumulators go when k is split (row stride ld_partial), else null.
  static void rectangle(const tw_gemm_args &x, int64_t z, int64_t m0, int64_t m1, int64_t n0, int64_t n1, int64_t k0,
                        int64_t k1, Sum *partial, int64_t ld_partial, uint32_t *slot) {
    const A *a = static_cast<const A *>(x.a) + z * x.a_batch_stride;
    [[maybe_unused]] const B *b = static_cast<const B *>(x.b) + z * x.b_batch_stride;
    [[maybe_unused]] const uint32_t *packed =
        static_cast<const uint32_t *>(x.b) + (x.b_batch_stride ? z : 0) * ((x.n + NR - 1) / NR) * panel_words(x.k);
    uint32_t *a_block = slot;
    slot += least(up(x.m, MR), MC) * a_stride;
    uint32_t *scratch = slot;
    slot += MR * NR;
    uint32_t *b_block = slot;
    int64_t n_most = least(up(x.n, NR), NC);
    if (!Prepacked) slot += n_most / NR * panel_space;

    Block t{};
    t.x = &x;
    t.z = z;
    t.scratch = scratch;
    t.whole = partial || End::plain(x);
    t.rounded = !partial && End::only_rounded(x);
    t.to = partial ? partial : t.whole ? reinterpret_cast<Sum *>(End::row(x, z, 0, 0).e) : nullptr;
    t.ld_to = partial ? ld_partial : x.e_stride;
    uint32_t *kept_accum = slot;
    int64_t chunk = k1 - k0 <= KC ? m1 - m0 : chunk_rows;

    for (int64_t jc = n0; jc < n1; jc += NC) {
      int64_t n = least(NC, n1 - jc);
      for (int64_t mc = m0; mc < m1; mc += chunk) {
        int64_t m_end = least(mc + chunk, m1);
        int64_t pc = k0;
        do {
          int64_t depth = least(KC, k1 - pc), groups = (depth + step - 1) / step;
          t.first = pc == k0;
          t.last = pc + depth >= k1;
          uint32_t *kept = kept_accum;  // in the order in which the blocks are visited
          for (int64_t ic = mc; ic < m_end; ic += MC) {
            int64_t m = least(MC, m_end - ic);
            const A *a_at = Config::a_rows ? a + ic * x.a_stride + pc : a + pc * x.a_stride + ic;
            pack_a<D, Config::a_rows>(a_at, x.a_stride, m, up(m, MR), depth, a_block, a_stride);
            for (int64_t j = 0; j < n; j += NR) {
              // The last panel is only as wide as it must be, except where it was packed beforehand.
              with_fixed<vectors>(Prepacked || !Config::pad_n ? vectors : (n - j + lanes - 1) / lanes, [&](auto v) {
                constexpr int V = decltype(v)::value;
                const Panel p = panel_at<V>(x, b, packed, b_block, jc, j, n, pc, depth, ic == mc);
                for (int64_t i = 0; i < m; i += MR, kept += MR * NR)
                  one<V>(t, groups, a_block + i * a_stride, p.words, p.start, kept, ic + i, jc + j, least(MR, m - i),
                         least(NR, n - j));
              });
            }
          }
          pc += depth;
        } while (pc < k1);
      }
    }
  }

  // ---- the kernel ---------------------------------------------------------------------------
  static int launch(const tw_gemm_args &x, void *workspace, void *stream) {
    auto *base = reinterpret_cast<uint32_t *>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
    int64_t threads = useful(x, team_size(stream));
    Grid g = finer(x, grid(x, threads), threads);
    int64_t per_matrix = g.m * g.n, items = x.batch * Config::split_k * per_matrix;
    auto *partials = reinterpret_cast<Sum *>(base);
    int64_t ld = up(x.n, lanes), slot = slot_words(x);
    uint32_t *slots_at = base + up(partial_words(x), 16);
    int64_t k_share = up((x.k + Config::split_k - 1) / Config::split_k, step);
    int64_t m_share = up((x.m + g.m - 1) / g.m, MR), n_share = up((x.n + g.n - 1) / g.n, NR);
    share_out(stream, threads, items, [&](int64_t worker, int64_t item) {
      int64_t part = item % per_matrix, s = item / per_matrix % Config::split_k,
              z = item / per_matrix / Config::split_k;
      int64_t m0 = least(x.m, g.row(part) * m_share), n0 = least(x.n, g.column(part) * n_share);
      int64_t m1 = least(x.m, m0 + m_share), n1 = least(x.n, n0 + n_share);
      int64_t k0 = least(x.k, s * k_share), k1 = least(x.k, k0 + k_share);
      if (m0 >= m1 || n0 >= n1) return;
      Sum *partial = Config::split_k > 1 ? partials + (z * Config::split_k + s) * x.m * ld : nullptr;
      rectangle(x, z, m0, m1, n0, n1, k0, k1, partial, ld, slots_at + worker * slot);
    });
    if constexpr (Config::split_k > 1) reduce(x, partials, ld, stream, threads);
    return TW_OK;
  }

  // Partial sums added in the order of k, then finished.  The first split's row holds the total.
  static void reduce(const tw_gemm_args &x, Sum *partials, int64_t ld, void *stream, int64_t threads) {
    int64_t rows = x.batch * x.m, pieces = least(4 * threads, rows);
    share_out(stream, threads, pieces, [&](int64_t, int64_t piece) {
      for (int64_t row = piece * rows / pieces; row < (piece + 1) * rows / pieces; ++row) {
        int64_t z = row / x.m, i = row % x.m;
        Sum *total = partials + (z * Config::split_k * x.m + i) * ld;
        for (int64_t j = 0; j < ld; j += lanes) {
          vu sum = load_u(total + j);
          for (int s = 1; s < Config::split_k; ++s) {
            vu next = load_u(total + s * x.m * ld + j);
            if constexpr (same<Sum, float>::value) sum = vu(vf(sum) + vf(next));
            else sum = sum + next;
          }
          store_u(total + j, sum);
        }
        End::store(x, End::row(x, z, i, 0), total, x.n);
      }
    });
  }

  static int pack(const tw_gemm_args &x, void *packed, void *stream) {
    int64_t panels = (x.n + NR - 1) / NR, batch = x.b_batch_stride ? x.batch : 1;
    parallel(stream, panels * batch, [&](int64_t index) {
      int64_t z = index / panels, j = index % panels * NR;
      auto *out = static_cast<uint32_t *>(packed) + index * panel_words(x.k);
      const B *b = static_cast<const B *>(x.b) + z * x.b_batch_stride + (Config::b_rows ? j : j * x.b_stride);
      pack_b<D, Config::b_rows, vectors>(b, x.b_stride, x.n - j, x.k, out + panel_head,
                                         reinterpret_cast<int32_t *>(out));
    });
    return TW_OK;
  }
};

}  // namespace tw
