// wmma, mfma and fma: tiles staged in LDS by kernels of our own, where CK Tile's headers have no product.  What it takes.
#pragma once
#include <tilewright/hip/conv/cost.h>
#include <tilewright/hip/conv/tiled/limits.h>

namespace tw {
namespace selection {
namespace hip_conv {
namespace tiled {

// Whole rounds of blocks, or the bytes; with k split the splits are added afterwards.
inline double multiplying(const Schedule &s, const Query &x, const Conv &c, const Product &product, int64_t batch) {
  const Tiles t = tiles_of(s);
  const Rates &r = x.rate;
  const int64_t turns = ceil_div(ceil_div(product.k, t.tile_k), t.split_k);
  const int64_t together = larger(1, 8 / (t.threads / (s.mfma ? 64 : 32)));  // blocks of one compute unit that fill it
  const Wide blocks = Wide(ceil_div(product.m, t.tile_m)) * ceil_div(product.n, t.tile_n) * t.split_k * batch;
  const Wide room = larger(1, x.arch.compute_units) * together, rounds = (blocks + room - 1) / room;
  // Small tiles are fed from LDS too often.
  const double reuse = faster(1.0, double(t.tile_m * t.tile_n) / double(t.tile_m + t.tile_n) / 48);
  const double of_cdna = c.p.size == 4 ? r.gemm.macs_4 : c.p.size == 2 ? r.gemm.macs_2 : r.gemm.macs_1;
  const double macs = s.mfma ? of_cdna : s.wmma ? r.wmma_macs : r.fma_macs;
  const double speed = macs * r.rdna_clock * r.rdna_share * reuse / double(together);
  const double compute = double(rounds * (turns + 1) * (t.tile_m * t.tile_n * t.tile_k)) / speed;
  const Wide sums = t.split_k > 1 ? Wide(2) * t.split_k * product.m * product.n * batch * 4 : 0;
  return r.start * (t.split_k > 1 ? 2.0 : 1.0) + slower(compute, (c.moved + double(sums)) / r.rdna_memory);
}

inline double seconds(const Schedule &s, const Query &x) {
  return seconds_of(tiles_of(s), x, [&](const Conv &c, const Product &product, int64_t batch) {
    return multiplying(s, x, c, product, batch);
  });
}

}  // namespace tiled
}  // namespace hip_conv
}  // namespace selection
}  // namespace tw
