// GEMM's instance of CK Tile with windows of our own.  What it takes.
#pragma once
#include <tilewright/hip/conv/cost.h>
#include <tilewright/hip/conv/ck_tile/limits.h>
#include <tilewright/hip/gemm/ck_tile/cost.h>

namespace tw {
namespace selection {
namespace hip_conv {
namespace ck_tile {

inline double seconds(const Schedule &s, const Query &x) {
  const Tiles t = tiles_of(s);
  return seconds_of(t, x, [&](const Conv &c, const Product &product, int64_t batch) {
    GemmProblem p{};
    p.m = product.m, p.n = product.n, p.k = product.k, p.batch = batch;
    p.size_a = p.size_b = c.p.size, p.size_c = c.p.size == 1 ? 4 : c.p.size;  // bytes are summed in 32 bits
    const hip_gemm::ck_tile::Schedule own{s.pipeline, t.tile_m,  t.tile_n, t.tile_k, 0, t.split_k, t.threads,
                                          s.width_a,  s.width_b, 1,        1,        1, 0};
    return hip_gemm::ck_tile::seconds(own, {p, bytes_moved(p), x.rate.gemm, x.arch, x.host});
  });
}

}  // namespace ck_tile
}  // namespace hip_conv
}  // namespace selection
}  // namespace tw
