// tma_ws of convolutions: TMA traverses pixels and feeds wgmma.  What it takes.
#pragma once
#include <tilewright/cuda/conv/copies_cost.h>
#include <tilewright/cuda/conv/tma_ws/limits.h>
#include <tilewright/cuda/gemm/tma_ws/cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace tma_ws {

// The matrix product that a direction is (cuda/conv/tma_ws/shape.h).
inline GemmProblem product(const Schedule &s, const Conv &c, int64_t merged) {
  const ConvProblem &p = c.p;
  const int64_t channels = c.group_channels * merged, filters = c.group_filters * merged;
  int64_t m, n, k, groups = p.groups / merged;
  if (p.variant == forward) {
    m = p.batch * c.out.product(), n = filters, k = c.taps * round_up(channels, s.tile_k);
  } else if (p.variant == backward_data) {  // classes of pixels share the taps
    int64_t classes = 1;
    for (int axis = 0; axis < 3; ++axis) classes *= smaller(c.stride[axis], c.size[axis]);
    m = p.batch * c.size.product() / classes, n = channels;
    k = round_up(c.taps * round_up(filters, s.tile_k) / classes, s.tile_k), groups *= classes;
  } else {
    m = filters, n = c.taps * round_up(channels, 64), k = p.batch * c.out.product();
  }
  GemmProblem g{};
  g.m = larger(1, m), g.n = n, g.k = larger(1, k), g.batch = groups;
  g.a_stride = round_up(p.variant == backward_weight ? g.m : g.k, 64);
  g.b_stride = round_up(p.variant == forward ? g.k : g.n, 64), g.c_stride = larger(1, n);
  set_aligned(g, true, true, true);
  g.num_d = p.num_d, g.type_a = g.type_b = bf16, g.plain = p.plain;
  g.size_a = g.size_b = p.size, g.size_c = p.size_out, g.size_d = p.size_d;
  g.a_rows = p.variant != backward_weight, g.b_rows = p.variant != forward;
  return g;
}

// Bytes: of x only the pixels that some tap meets, where it is read.
inline double moved(const Conv &c) {
  if (c.p.variant == backward_data) return c.moved;
  double met = 1.0;
  for (int axis = 0; axis < 3; ++axis) met *= faster(1.0, double(c.window[axis]) / double(c.stride[axis]));
  return c.moved - (1.0 - met) * c.x_elements() * double(c.p.size);
}

// Of a problem as it lies: the product, with the convolution's own bytes, or the traversal of its pixels, which come one by one.
inline double seconds_as_laid_out(const Schedule &s, const Query &x) {
  const Conv &c = x.c;
  const ConvProblem &p = c.p;
  const Rates &r = x.rate;
  constexpr double short_traversal = 1.2, odd_pixel = 1.3, beside = 0.3, ahead = 0.85, streamed = 1.15;
  const int64_t merged = larger(1, merged_groups(c, s.merged, s.tile_k));
  const bool weight = p.variant == backward_weight;
  const GemmProblem g = product(s, c, merged);
  const cuda_gemm::Arch arch{x.arch.compute_units, x.arch.scratch_bytes};
  const cuda_gemm::Query query{g, moved(c), r.gemm, arch, x.host};
  const cuda_gemm::tma_ws::Schedule equivalent{s.tile_m,    s.tile_n,         s.tile_k,
                                               s.cluster_m, s.cluster_n,      s.pingpong,
                                               0,           s.tile_scheduler, by_rows(s, c) ? 1 : s.tma_store};
  const double steps = cuda_gemm::tma_ws::work(equivalent, cuda_gemm::tma_ws::view(equivalent, g), query).steps;
  // TMA delivers pixel by pixel, whatever they hold.
  const double traversed = weight ? double(s.tile_n) / double(s.cluster_m) : double(s.tile_m) / double(s.cluster_n);
  double pixel = r.pixel(p.dims) * (s.tile_m < 256 ? short_traversal : 1.0);
  if ((p.variant == backward_data ? p.filters : p.channels) % 16) pixel *= odd_pixel;
  // Rows of weights that end before their 128 bytes do, or the copy that fills them up.
  const double rows = steps * double(s.tile_n);
  const bool ends = !weight && !s.merged && c.group_channels % 64 != 0;
  const double filled = ends && rows >= 600 ? r.add_start : 0.0, early = ends && rows < 600 ? rows * r.short_row : 0.0;
  const double traversal = r.start + r.band_fill + steps * traversed * pixel + early;
  const bool apart = merged > 1 || (weight && odd_columns(c) && !ragged(c));
  const double copied = apart ? 2 * double(Wide(p.filters) * c.taps * (c.group_channels * merged) * p.size) : 0.0;
  double product_time = cuda_gemm::tma_ws::seconds_with(equivalent, query, apart, copied);
  if (p.variant == forward) product_time = r.start + ahead * (product_time - r.start);
  const double longer = weight && s.tile_scheduler == cuda_gemm::stream_k ? streamed : 1.0;
  const double most = slower(product_time, traversal), least = faster(product_time, traversal);
  return (most + beside * (least - r.start)) * longer + filled;
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_in_copies(s.copies, needs(s), x,
                           [&](const Query &laid_out) { return seconds_as_laid_out(s, laid_out); });
}

}  // namespace tma_ws
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
