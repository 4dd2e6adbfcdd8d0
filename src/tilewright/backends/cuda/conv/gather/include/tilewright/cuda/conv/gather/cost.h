// gather, gather_planes: cp.async gathers pieces of both operands, and mma.sync multiplies them.  What it takes.
#pragma once
#include <tilewright/cuda/conv/cost.h>
#include <tilewright/cuda/conv/gather/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace gather {

// Blocks that share a tile.
inline int64_t parts_of_k(const cuda_gemm::Rates &r, const Schedule &s, const Conv &c, int64_t tiles, int64_t steps,
                          int64_t processors) {
  const double step = double(s.tile_m * s.tile_n * s.tile_k) / (c.p.size == 4 ? r.parts_plain_macs : r.parts_mma_macs);
  const double sums = double(s.tile_m * s.tile_n * 8) / r.parts_sums;
  const PartCosts costs{step, kAlone, r.parts_sync, sums};
  return even_parts(steps, filling_parts(tiles, steps, processors, s.ctas_per_sm, costs));
}

// How an operand comes in; `Gathered` in cuda/conv/gather/shape.h.
struct Side {
  int64_t size, lines, deep, vector;
  bool along_k;

  bool single() const { return vector * size < 4; }  // element by element, which no copy can
  bool held() const { return single() || (size == 4 && along_k && vector > 1); }
  // Instructions that its pieces take.
  double query() const {
    const double each = single() ? 14.0 : held() ? 40.0 : 26.0;
    return double(lines * deep) / double(single() ? 1 : vector) * each;
  }
  // Of a stage: elements that neighbouring threads do not read side by side take a sector each.
  double bytes(int64_t apart_k, int64_t apart_lines) const {
    const int64_t apart = along_k ? apart_k : apart_lines;
    const int64_t each = vector > 1 ? size : smaller(32, larger(1, apart < 0 ? -apart : apart) * size);
    return double(lines * deep * each);
  }
};

inline double fetched_bytes(const Conv &c, const Side &a, const Side &b) {
  const ConvProblem &p = c.p;
  if (p.variant == forward) return a.bytes(p.x_channel, p.x_2 * p.stride_2) + b.bytes(p.w_channel, p.w_filter);
  if (p.variant == backward_data) return a.bytes(p.y_channel, p.y_2) + b.bytes(p.w_filter, p.w_channel);
  return a.bytes(p.y_2, p.y_channel) + b.bytes(p.x_2 * p.stride_2, p.x_channel);
}

// Whether results leave in words.
inline bool stores_words(const Conv &c) {
  const int64_t variant = c.p.variant, width = c.p.size_out == 4 ? 4 : 8;
  return in_vectors(c,
                    variant == forward         ? y_strides(c)
                    : variant == backward_data ? x_strides(c)
                                               : w_strides(c),
                    width);
}

// The slowest of multiplying, asking for pieces, and memory, all of the busiest multiprocessor.
inline double seconds(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const GatherRates &r = x.rate.gather;
  const int64_t m = s.tile_m, n = s.tile_n, k = s.tile_k, size = c.p.size, units = x.arch.compute_units;
  const int64_t whole = int64_t(tiles(s, c));
  if (c.p.batch == 0 || whole == 0) return x.rate.start;
  const bool data = c.p.variant == backward_data, weight = c.p.variant == backward_weight;
  int64_t deep = weight ? c.p.batch * c.out.product() : (data ? c.group_filters : c.group_channels) * c.taps;
  if (data) deep = ceil_div(deep, classes_of(c));
  const int64_t steps = larger(1, ceil_div(deep, k)), parts = parts_of_k(x.rate.gemm, s, c, whole, steps, units);
  const Side a{size, m, k, s.vector_a, s.along_a != 0}, b{size, n, k, s.vector_b, s.along_b != 0};
  const double multiply = double(m * n * k) / (size == 1 ? r.macs_1 : size == 2 ? r.macs_2 : r.macs_4);
  const double query = (a.query() + b.query()) / 32 / r.issued, fetched = fetched_bytes(c, a, b) / r.fetched;
  const double longest = slower(slower(multiply, query), fetched);
  const double step = longest + 0.62 * (multiply + query + fetched - longest);
  const int64_t busiest = ceil_div(whole * parts, units);
  const double leave = double(m * n * 70) / (stores_words(c) ? 4 : 1) / 32 / r.issued;
  const double rounds = double(busiest) * (1.0 + 0.11 / double(smaller(busiest, s.ctas_per_sm)));
  const double took = double(ceil_div(steps, parts)) * step * rounds + (leave + r.setup) * double(busiest);
  const double shared = parts > 1 ? r.sync + double(Wide(whole) * parts * m * n * 8) / r.memory : 0.0;
  const double all = r.start + r.fill + slower(took, c.moved / r.memory) + shared;
  // Where it is even with kernels of TMA and wgmma, these are the faster ones.
  return all * (size == 2 && x.arch.wgmma ? 1.2 : 1.0);
}

}  // namespace gather
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
