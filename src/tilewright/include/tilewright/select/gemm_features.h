// What a learned model sees of a GEMM problem, and of a problem with each kernel; as ops/gemm/features.py in training.
#pragma once
#include <math.h>
#include <tilewright/select/features.h>
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {
namespace gemm_features {

constexpr int64_t kProblem = 21, kBoth = 20;

// Of the kernels alone, a number a kernel: `kernel_terms` of ops/gemm/features.py.  `spans` are four rows of them;
// `split` and `streamed` may be null where no kernel is so.
struct Terms {
  const double *spans, *block_k, *shares_k, *room, *volume, *fetched, *flow, *flying, *rings, *way_out;
  const uint8_t *split, *streamed;
};
constexpr char kTermRows[] = "4 1 1 1 1 1 1 1 1 1 1? 1?";

using Seen = PreparedGemm;
inline double flops(const Seen &seen) { return double(2 * multiply_adds(seen.p)); }

inline float log2_of(double value) { return float(log2(value > 1.0 ? value : 1.0)); }

// The power of two that divides a row's bytes, up to a line of the cache, as its logarithm.
inline float alignment(int64_t stride, int64_t size) {
  const int64_t bytes = stride * size;
  return bytes ? float(smaller(7, __builtin_ctzll(uint64_t(bytes)))) : 7.0f;
}

inline void of_problem(const Seen &seen, float *out) {
  const GemmProblem &p = seen.p;
  const double moved = seen.moved, operations = flops(seen);
  const float found[kProblem] = {log2_of(double(p.m)),
                                 log2_of(double(p.n)),
                                 log2_of(double(p.k)),
                                 log2_of(double(p.batch)),
                                 log2_of(operations),
                                 log2_of(operations / (moved > 1.0 ? moved : 1.0)),
                                 log2_of(double(Wide(p.m) * p.k * p.size_a)),
                                 log2_of(double(Wide(p.k) * p.n * p.size_b)),
                                 log2_of(double(Wide(p.m) * p.n * p.size_c)),
                                 float(p.size_a),
                                 float(p.size_b),
                                 float(p.size_c),
                                 float(p.a_rows),
                                 float(p.b_rows),
                                 alignment(p.a_stride, p.size_a),
                                 alignment(p.b_stride, p.size_b),
                                 alignment(p.c_stride, p.size_c),
                                 float(p.num_d),
                                 float(p.activation),
                                 float(p.beta),
                                 float(p.preshuffled)};
  for (int64_t i = 0; i < kProblem; ++i) out[i] = found[i];
}

// Into how many splits the k of a tile is divided: as split_k kernels decide (cuda/schedulers/tile_scheduler.h), or as the kernel says.
inline double parts_of(const Terms &t, int64_t at, double tiles, double steps) {
  double shares = t.shares_k[at];
  if (t.split) {
    const double wanted = slower(1.0, floor(faster(t.room[at] / tiles, steps / 4)));
    shares = (t.split[at] ? ceiling(steps / ceiling(steps / wanted)) : 1.0) * shares;
  }
  return slower(1.0, faster(steps, shares));
}

// A row a feature, a column a kernel of `some`; terms are of `count` kernels, and rows lie as far apart.
inline void of_both(const Seen &seen, const Terms &t, int64_t count, int64_t units, const Some &some, double *out) {
  const GemmProblem &p = seen.p;
  const double m = double(larger(1, p.m)), n = double(larger(1, p.n)), k = double(larger(1, p.k));
  const double batch = double(larger(1, p.batch)), each = double(units);
  const double macs = double(Wide(larger(1, p.m)) * larger(1, p.n) * larger(1, p.k) * larger(1, p.batch)) / each;
  const double bytes = slower(1.0, seen.moved), again = double(p.size_a) / bytes, per_unit = bytes / each;
  const double sizes[4] = {m, n, m, n}, whole = p.c_stride % 2 == 0 ? 1.0 : 0.0;
  const double copied = double((p.a_stride * p.size_a % 16 > 0) + (p.b_stride * p.size_b % 16 > 0));
  for (int64_t row = 0; row < some.count; ++row) {
    const int64_t at = some.place(row);
    double *to = out + row;
    double cells[4];
    for (int64_t i = 0; i < 4; ++i) {
      const double span = t.spans[i * count + at];
      cells[i] = ceiling(sizes[i] / span);
      to[(11 + i) * count] = sizes[i] / (cells[i] * span);
    }
    const double tiles = cells[0] * (cells[1] * batch), steps = ceiling(k / t.block_k[at]);
    const double parts = parts_of(t, at, tiles, steps);
    const double waves = (t.split && t.split[at] ? tiles * parts : tiles) / t.room[at];
    const double rounds = t.streamed && t.streamed[at] ? slower(waves, 1 / steps) : ceiling(waves);
    const double deep = ceiling(steps / parts) * rounds, work = deep * t.volume[at];
    const double fetched = tiles * steps * t.fetched[at];
    to[0] = tiles, to[count] = deep, to[2 * count] = parts, to[3 * count] = work;
    to[4 * count] = macs / work, to[5 * count] = fetched, to[6 * count] = fetched * again;
    to[7 * count] = per_unit / work, to[8 * count] = faster(waves, 1.0) * t.flying[at];
    to[9 * count] = faster(waves, 64.0), to[10 * count] = waves / rounds;
    to[15 * count] = faster(cells[0], 64.0), to[16 * count] = faster(cells[1], 64.0);
    to[17 * count] = t.flow[at], to[18 * count] = t.way_out[at] > whole ? 1.0 : 0.0;
    to[19 * count] = t.rings[at] * copied;
  }
}

}  // namespace gemm_features
}  // namespace selection
}  // namespace tw

// The exports of a library of GEMM kernels: what a learned model sees of a problem, and of it with kernels.
#define TW_SELECT_GEMM_FEATURES TW_SELECT_FEATURES(tw::selection::GemmProblem, tw::selection::gemm_features)
