// pointwise_tma_ws: GEMM's tma_ws on the matrix product that windows of one pixel are.  What it takes.
#pragma once
#include <tilewright/cuda/conv/pointwise_cost.h>
#include <tilewright/cuda/conv/pointwise_tma_ws/limits.h>
#include <tilewright/cuda/gemm/tma_ws/cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace pointwise_tma_ws {

// Seconds of the rows that a block loads in a k-block, on average: k or lines that are no whole 64s end early.
inline double rows(const PointwiseRates &r, bool along_k, int64_t tile, int64_t deep, int64_t lines, int64_t k,
                   int64_t parts) {
  const double count = along_k ? double(tile) : double(64 * ceil_div(smaller(tile, lines), 64));
  const double ends = along_k ? double(k % deep > 0 ? tile : 0) / double(ceil_div(k, deep))
                              : double(lines % 64 > 0 ? 64 : 0) / double(ceil_div(lines, tile));
  return (count * r.row + ends * r.short_row) / double(parts);
}

inline double seconds(const Schedule &s, const Query &x) {
  const Rates &r = x.rate;
  if (x.c.p.batch == 0) return r.start;
  const pointwise::Gemm gemm(x, pointwise::product(x.c, s.planes, true, true, true));
  const GemmProblem &p = gemm.p;
  const cuda_gemm::tma_ws::Schedule &one = s.product;
  const double whole = pointwise::in_measure(x.c, r, s.planes, cuda_gemm::tma_ws::seconds(one, gemm.query));
  const double steps = cuda_gemm::tma_ws::work(one, cuda_gemm::tma_ws::view(one, p), gemm.query).steps;
  const bool apart = one.tile_scheduler == cuda_gemm::cluster_k;
  const double query = rows(r.pointwise, p.a_rows, one.tile_m, one.tile_k, p.m, p.k, apart ? 1 : one.cluster_n) +
                       rows(r.pointwise, !p.b_rows, one.tile_n, one.tile_k, p.n, p.k, apart ? 1 : one.cluster_m);
  const double traversed = r.start + r.pointwise.first_rows + steps * query;
  return slower(whole, traversed) + 0.1 * (faster(whole, traversed) - r.start);
}

}  // namespace pointwise_tma_ws
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
