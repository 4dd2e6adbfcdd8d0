// TMA: boxes of a tensor map to shared memory and back, and plain bytes to shared memory.
#pragma once
#include <tilewright/cuda/primitives/barrier.h>
#include <tilewright/cuda/primitives/tensor_map.h>

namespace tw {

TW_GPU void tma_prefetch(const TensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// A box on its way from memory into the second-level cache.
TW_GPU void tma_prefetch_box(const TensorMap *map, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y), "r"(z)
               : "memory");
}
// Box at (x, y, z), x the contiguous dimension.
TW_GPU void tma_load(const TensorMap *map, Barrier *full, void *to, int x, int y, int z, uint64_t policy = cached) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, "
      "%5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(&full->word)), "r"(x), "r"(y), "r"(z), "l"(policy)
      : "memory");
}
// The same box to the same place in every block of the cluster whose bit is set.
TW_GPU void tma_load_multicast(const TensorMap *map, Barrier *full, void *to, int x, int y, int z, uint16_t blocks,
                               uint64_t policy = cached) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(&full->word)), "r"(x), "r"(y), "r"(z), "h"(blocks), "l"(policy)
      : "memory");
}
// Where a traversal of pixels of an im2col map starts: channel, then the pixel as the map counts (before any offset), then the
// image; and by how much every pixel of the traversal is moved: a tap of a filter.
struct Traversal {
  int channel, w, h, d, image;
};
struct Tap {
  uint16_t w, h, d;
};
// As many pixels as the map says from there on, row by row and image by image, of Spatial dimensions; zeros outside.
template <int Spatial>
TW_GPU void tma_load_pixels(const TensorMap *map, Barrier *full, void *to, const Traversal &at, const Tap &tap) {
  if constexpr (Spatial == 2)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
        "%6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(&full->word)), "r"(at.channel), "r"(at.w), "r"(at.h), "r"(at.image), "h"(tap.w),
        "h"(tap.h)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
        "%6, %7}], [%2], {%8, %9, %10};" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(&full->word)), "r"(at.channel), "r"(at.w), "r"(at.h), "r"(at.d), "r"(at.image),
        "h"(tap.w), "h"(tap.h), "h"(tap.d)
        : "memory");
}
template <int Spatial> TW_GPU void tma_load_pixels_multicast(const TensorMap *map, Barrier *full, void *to,
                                                             const Traversal &at, const Tap &tap, uint16_t blocks) {
  if constexpr (Spatial == 2)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(&full->word)), "r"(at.channel), "r"(at.w), "r"(at.h), "r"(at.image), "h"(tap.w),
        "h"(tap.h), "h"(blocks)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(&full->word)), "r"(at.channel), "r"(at.w), "r"(at.h), "r"(at.d), "r"(at.image),
        "h"(tap.w), "h"(tap.h), "h"(tap.d), "h"(blocks)
        : "memory");
}
// `bytes` of memory as they are; addresses and length in multiples of 16.
TW_GPU void bulk_load(const void *from, Barrier *full, void *to, uint32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&full->word))
               : "memory");
}
TW_GPU void bulk_load_multicast(const void *from, Barrier *full, void *to, uint32_t bytes, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&full->word)), "h"(blocks)
      : "memory");
}
TW_GPU void tma_store(const TensorMap *map, const void *from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
// Rows of a map of four dimensions: from column x of row y on, of head z in sequence or page w.
TW_GPU void tma_load_rows(const TensorMap *map, Barrier *full, void *to, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(&full->word)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
TW_GPU void tma_prefetch_rows(const TensorMap *map, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(x), "r"(y), "r"(z),
               "r"(w)
               : "memory");
}
// The same back, added to the fp32 that are there; what lies outside of the map is left out.
TW_GPU void tma_add_rows(const TensorMap *map, const void *from, int x, int y, int z, int w) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
TW_GPU void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All but the newest `Left` stores have read their shared memory.
template <int Left> TW_GPU void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Left) : "memory");
}
// And what they wrote is there.
template <int Left> TW_GPU void tma_wait_written() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Left) : "memory");
}

}  // namespace tw
