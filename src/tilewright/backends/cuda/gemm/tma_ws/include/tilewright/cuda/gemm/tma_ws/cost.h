// tma_ws: TMA feeds wgmma, warp-specialised and persistent.  What it takes.
#pragma once
#include <tilewright/cuda/gemm/cost.h>
#include <tilewright/cuda/gemm/tma_ws/limits.h>

namespace tw {
namespace selection {
namespace cuda_gemm {
namespace tma_ws {

// The schedule as its kernel sees it: with swapped operands, rows of the problem lie along the kernel's columns.
struct View {
  int64_t rows, columns, cluster_rows, cluster_columns, groups, lines_m, lines_n;
};

inline View view(const Schedule &s, const GemmProblem &p) {
  const bool apart = s.tile_scheduler == cluster_k;  // these share no operand
  const int64_t along_m = apart ? 1 : s.cluster_m, along_n = apart ? 1 : s.cluster_n;
  const int64_t groups = s.pingpong ? 1 : (s.swap_ab ? s.tile_n : s.tile_m) == 192 ? 3 : 2;
  if (s.swap_ab) return {s.tile_n, s.tile_m, along_n, along_m, groups, p.n, p.m};
  return {s.tile_m, s.tile_n, along_m, along_n, groups, p.m, p.n * sums(p)};
}

// Columns that are fetched: in whole lines of 64 where lines, not k, are contiguous; one- and four-byte types are
// copied before.
inline int64_t fetched_columns(const Schedule &s, const View &v, const GemmProblem &p) {
  const bool by_lines = p.size_a == 2 && (s.swap_ab ? !p.a_rows : p.b_rows && !p.preshuffled);
  return by_lines ? round_up(v.columns, 64) : v.columns;
}

// An operand is copied first that TMA cannot read, or whose type wgmma reads along k only.
inline bool copied(bool aligned, int64_t stride, int64_t size, bool along_k) {
  return stride * size % 16 != 0 || !aligned || (size != 2 && !along_k);
}
inline bool a_copied(const GemmProblem &p) { return copied(p.aligned_a, p.a_stride, p.size_a, p.a_rows); }
inline bool b_copied(const GemmProblem &p) {
  return !p.preshuffled && copied(p.aligned_b, p.b_stride, p.size_b, !p.b_rows);
}

// Rows of an operand start between lines of the cache; copies are made so that they do not.
inline bool a_strays(const GemmProblem &p) { return !a_copied(p) && p.a_stride * p.size_a % 128 != 0; }
inline bool b_strays(const GemmProblem &p) {
  return !p.preshuffled && !b_copied(p) && p.b_stride * p.size_b % 128 != 0;
}

inline double copied_bytes(const GemmProblem &p) {
  double again = 0.0;
  if (a_copied(p)) again += 2.0 * double(p.m) * double(p.k) * double(p.batch) * double(p.size_a);
  if (b_copied(p)) again += 2.0 * double(p.n) * double(p.k) * double(p.batch) * double(p.size_b);
  return again;
}

// Clusters that run at a time: multiprocessors lie in groups of 16 and 18, so larger clusters leave some idle.
inline int64_t clusters_of(int64_t units, int64_t blocks) {
  return larger(1, blocks <= 2 ? units / blocks : units * 10 / (11 * blocks));
}

// What the busiest block does.
struct Work {
  double steps, rounds, handed, sums;
  int64_t parts, busy;  // splits of k; clusters at work
};

inline Work work(const Schedule &s, const View &v, const Query &x) {
  const int64_t shared = sharing_k(s), blocks = v.cluster_rows * v.cluster_columns;
  const int64_t clusters = clusters_of(x.arch.compute_units, blocks * shared);
  const int64_t tiles =
      ceil_div(v.lines_m, v.rows * v.cluster_rows) * ceil_div(v.lines_n, v.columns * v.cluster_columns) * x.p.batch;
  const int64_t steps = larger(1, ceil_div(x.p.k, s.tile_k)), rounds = ceil_div(tiles, clusters);
  const int64_t parts = s.tile_scheduler == split_k ? parts_of(tiles, steps, clusters) : 1;
  Work w{double(steps * rounds), double(rounds), 0.0, 0.0, parts, smaller(clusters, tiles)};
  if (parts > 1) {
    w.steps = double(ceil_div(steps, parts)), w.rounds = 0.0, w.busy = tiles * parts;
    w.sums =
        8.0 * double(v.rows) * double(v.columns) * double(w.busy) * double(v.cluster_rows) * double(v.cluster_columns);
  } else if (s.tile_scheduler == stream_k) {
    const Streamed dealt = streamed(tiles, steps, clusters);
    w.steps = double(dealt.steps), w.handed = double(dealt.takes);
    w.rounds = w.steps / double(steps), w.busy = smaller(clusters, larger(1, tiles * steps / 4));
  } else if (shared > 1) {
    w.steps = w.rounds * double(ceil_div(steps, shared));
  }
  return w;
}

// What an estimate is made of.  Of times that go on at once, the powers that are added up (`slowest_of_powers`).
struct Counted {
  double from_cache;        // of a k-block, what is fetched from the cache: no power yet
  double all_in, multiply;  // of a k-block, as powers
  double neighbours, swapped;
  double steps, way_out, met;
  double streamed;  // from memory, as a power
  double copies;
};

// A k-block: its multiply beside what it fetches, from the cache and into the multiprocessor.
inline void count_step(const Schedule &s, const View &v, const Query &x, const Work &w, int64_t fetched, Counted &to) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const double blocks = double(w.busy * v.cluster_rows * v.cluster_columns * sharing_k(s));
  // Of lines beyond the matrix nothing is fetched.
  const double inside_m = double(v.lines_m) / double(round_up(v.lines_m, v.rows));
  const double inside_n = double(v.lines_n) / double(round_up(v.lines_n, v.columns));
  const double first = 128.0 * double(v.rows) * inside_m / double(v.cluster_columns) * blocks;
  const double second = 128.0 * double(fetched) * inside_n / double(v.cluster_rows) * blocks;
  const bool first_strays = s.swap_ab ? b_strays(p) : a_strays(p),
             second_strays = s.swap_ab ? a_strays(p) : b_strays(p);
  const double straight = (first_strays ? 0.0 : first) + (second_strays ? 0.0 : second);
  const double astray = (first_strays ? first : 0.0) + (second_strays ? second : 0.0);
  const double macs = double(v.rows * v.columns * s.tile_k * p.size_a) / 2;
  const double rate = faster(1.0, r.rate_floor + double(v.columns) / r.rate_columns) *
                      (1.0 - (1.0 - r.rate_rows) * (v.rows == 64 ? 1.0 : 0.0));
  // What neighbours fetch for a block spares the cache, not the block: all of it comes in.
  Powers &known = powers();
  to.all_in = kept_power(known.fetch[uint64_t(v.rows + fetched) / 8 % kPowers],
                         128.0 * double(v.rows + fetched) / r.one_cache, r.soft);
  to.from_cache = (straight + astray * r.astray) / r.cache;
  to.multiply = kept_power(known.multiply[uint64_t(v.rows / 64 * 32 + v.columns / 8 - 33) % kPowers],
                           macs / (r.macs * rate), r.soft);
  to.neighbours = r.per_neighbour * double(v.cluster_rows * v.cluster_columns - 1);
  to.swapped = 1.0 + (r.swap_ab - 1.0) * (s.swap_ab ? 1.0 : 0.0);
}

// The epilogue store (epilogue_store.h): by TMA, from the registers, or through a staging buffer of shared memory.
inline double way_out(const Schedule &s, const View &v, const Query &x, const Work &w) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const bool registers = !s.tma_store && v.rows == 64 * v.groups && v.columns <= 64 && !s.swap_ab;
  const bool anywhere = p.size_c == 2 && p.plain && !p.beta && !s.swap_ab && (unaligned(p.c_stride, 2) || !p.aligned_c);
  const bool staging = !s.tma_store && !registers && !anywhere;
  const double longer = 1.0 + (r.staging - 1.0) * (staging && p.size_c <= 2 ? 1.0 : 0.0) +
                        (r.wide_staging - 1.0) * (staging && p.size_c > 2 ? 1.0 : 0.0) +
                        (r.singles - 1.0) * (registers && p.c_stride % 2 == 1 ? 1.0 : 0.0);
  const double part = double(v.rows * v.columns) / (128 * 256), whole = w.parts == 1 ? 1.0 : 0.0;
  const double more = slower(0.0, w.rounds - 1), pingpong = s.pingpong ? 1.0 : 0.0;
  const double tiles = (s.pingpong ? 1.0 : slower(1.0, w.rounds)) * whole;
  const double leaving = part * (s.pingpong ? 1.0 : w.rounds > 1 ? w.rounds : 1.0) * whole;
  return (r.store_results * (leaving + r.hidden * (part * more * pingpong)) +
          r.store_least * (tiles + r.hidden_least * (more * pingpong))) *
         longer;
}

// With copies made first of so many bytes, read and written.
inline Counted count(const Schedule &s, const Query &x, bool copies_first, double again) {
  const GemmProblem &p = x.p;
  const Rates &r = x.rate;
  const View v = view(s, p);
  const Work w = work(s, v, x);
  const int64_t fetched = fetched_columns(s, v, p), shared = sharing_k(s);
  const double part = double(v.rows * v.columns) / (128 * 256);
  const double exchanged = 4.0 * double(v.rows) * double(v.columns) * double(shared - 1) / 2 * w.rounds;
  Counted to;
  count_step(s, v, x, w, fetched, to);
  to.steps = w.steps, to.way_out = way_out(s, v, x, w);
  to.met = r.sync * (w.parts > 1 ? 1.0 : 0.0) + w.sums / r.sums + r.hand_over * (w.handed * part) +
           r.exchange * (shared > 1 ? w.rounds : 0.0) + exchanged / r.neighbour;
  to.copies = r.copy_start * (copies_first ? 1.0 : 0.0) + again / r.copy;
  const double over = (double(fetched) / double(v.columns) - 1.0) * double(v.lines_n) * double(p.k) * double(p.size_a) *
                      double(p.batch);
  const double memory = (x.moved + r.over * over) / r.memory;
  to.streamed = kept_power(powers().memory[over != 0], memory, r.soft);  // of most kernels the same
  return to;
}

// A power waits for the one before it, and not for those of other kernels.
inline void add_up(const Counted *some, int64_t count, const Rates &r, double *to) {
  const double root = 1.0 / r.soft;
  for (int64_t i = 0; i < count; ++i) to[i] = pow(some[i].from_cache, r.soft);
  for (int64_t i = 0; i < count; ++i) to[i] = pow(some[i].multiply + (to[i] + some[i].all_in), root);
  for (int64_t i = 0; i < count; ++i) {
    const Counted &c = some[i];
    const double step = (to[i] + r.per_step + c.neighbours) * c.swapped;
    to[i] = pow(c.steps * step + c.way_out + c.met, r.soft);
  }
  for (int64_t i = 0; i < count; ++i) to[i] = r.start + r.fill + pow(to[i] + some[i].streamed, root) + some[i].copies;
}

inline double seconds_with(const Schedule &s, const Query &x, bool copies_first, double again) {
  const Counted counted = count(s, x, copies_first, again);
  double seconds;
  add_up(&counted, 1, x.rate, &seconds);
  return seconds;
}

// Of up to kTogether kernels (select/library.h).
inline void seconds_of_some(const Schedule *const *some, int64_t many, const Query &x, double *seconds) {
  Counted counted[32];
  const double again = copied_bytes(x.p);
  for (int64_t i = 0; i < many && !nothing_to_do(x.p); ++i) counted[i] = count(*some[i], x, again > 0, again);
  if (!nothing_to_do(x.p)) return add_up(counted, many, x.rate, seconds);
  for (int64_t i = 0; i < many; ++i) seconds[i] = x.rate.start;
}

inline double seconds(const Schedule &s, const Query &x) {
  if (nothing_to_do(x.p)) return x.rate.start;
  const double again = copied_bytes(x.p);
  return seconds_with(s, x, again > 0, again);
}

}  // namespace tma_ws
}  // namespace cuda_gemm
}  // namespace selection
}  // namespace tw
