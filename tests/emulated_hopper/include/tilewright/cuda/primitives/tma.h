// Emulated: cuda/primitives/tma.h.
#pragma once
#include <tilewright/cuda/primitives/barrier.h>
#include <tilewright/cuda/primitives/tensor_map.h>

namespace tw {

TW_GPU void tma_prefetch(const TensorMap *) {}
TW_GPU void tma_prefetch_box(const TensorMap *, int, int, int) {}
TW_GPU void tma_load(const TensorMap *map, Barrier *full, void *to, int x, int y, int z, uint64_t = cached) {
  emulated::copy_box(map, &full->word, to, x, y, z, 0);
}
TW_GPU void tma_load_multicast(const TensorMap *map, Barrier *full, void *to, int x, int y, int z, uint16_t blocks,
                               uint64_t = cached) {
  emulated::copy_box(map, &full->word, to, x, y, z, blocks);
}
struct Traversal {
  int channel, w, h, d, image;
};
struct Tap {
  uint16_t w, h, d;
};
template <int Spatial> TW_GPU void tma_load_pixels_multicast(const TensorMap *map, Barrier *full, void *to,
                                                             const Traversal &at, const Tap &tap, uint16_t blocks) {
  const int two[5] = {at.channel, at.w, at.h, at.image, 0}, three[5] = {at.channel, at.w, at.h, at.d, at.image},
            moved[3] = {tap.w, tap.h, tap.d};
  emulated::copy_pixels(map, &full->word, to, Spatial == 2 ? two : three, moved, blocks);
}
template <int Spatial>
TW_GPU void tma_load_pixels(const TensorMap *map, Barrier *full, void *to, const Traversal &at, const Tap &tap) {
  tma_load_pixels_multicast<Spatial>(map, full, to, at, tap, 0);
}
TW_GPU void bulk_load(const void *from, Barrier *full, void *to, uint32_t bytes) {
  emulated::copy_bytes(from, &full->word, to, bytes, 0);
}
TW_GPU void bulk_load_multicast(const void *from, Barrier *full, void *to, uint32_t bytes, uint16_t blocks) {
  emulated::copy_bytes(from, &full->word, to, bytes, blocks);
}
TW_GPU void tma_store(const TensorMap *map, const void *from, int x, int y, int z) {
  emulated::store_box(map, from, x, y, z);
}
TW_GPU void tma_load_rows(const TensorMap *map, Barrier *full, void *to, int x, int y, int z, int w) {
  emulated::copy_rows(map, &full->word, to, x, y, z, w);
}
TW_GPU void tma_prefetch_rows(const TensorMap *, int, int, int, int) {}
TW_GPU void tma_add_rows(const TensorMap *map, const void *from, int x, int y, int z, int w) {
  emulated::add_rows(map, from, x, y, z, w);
}
TW_GPU void tma_commit() { emulated::commit_stores(); }
template <int Left> TW_GPU void tma_wait_read() { emulated::wait_stores(Left); }
template <int Left> TW_GPU void tma_wait_written() { emulated::wait_written(Left); }

}  // namespace tw
