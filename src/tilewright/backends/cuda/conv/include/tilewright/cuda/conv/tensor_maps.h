// Tensor maps of images: traversals of pixels, as convolutions need them.
#pragma once
#include <tilewright/cuda/host/tensor_maps.h>

namespace tw::cuda {

// An image tensor as TMA traverses it: sizes and strides (in elements) of channels, w, h, d, images;
// which pixels a traversal goes over, by their first and by how far the last one may lie behind the tensor's last.
struct PixelKey {
  const void *address;
  int64_t sizes[5], strides[4];
  int lower[3], upper[3], steps[3];
  bool operator==(const PixelKey &o) const {
    bool same = address == o.address;
    for (int i = 0; i < 5; ++i) same = same && sizes[i] == o.sizes[i] && (i == 4 || strides[i] == o.strides[i]);
    for (int i = 0; i < 3; ++i)
      same = same && lower[i] == o.lower[i] && upper[i] == o.upper[i] && steps[i] == o.steps[i];
    return same;
  }
  uint64_t hash() const {
    uint64_t mixed = uint64_t(intptr_t(address));
    auto mix = [&mixed](int64_t one) { mixed = (mixed ^ uint64_t(one)) * 0x9e3779b97f4a7c15, mixed ^= mixed >> 32; };
    for (int i = 0; i < 5; ++i) mix(sizes[i]);
    for (int i = 0; i < 4; ++i) mix(strides[i]);
    for (int i = 0; i < 3; ++i) mix(lower[i]), mix(upper[i]), mix(steps[i]);
    return mixed;
  }
};

// Pixels of 128 bytes of channels, swizzled; 0, or the driver's error.
template <class T, int Spatial> int encode_traversal(const PixelKey &key, uint32_t pixels, TensorMap &map) {
  constexpr int rank = Spatial + 2;
  constexpr uint64_t bytes = sizeof(T);
  uint64_t sizes[5], strides[4];
  uint32_t steps[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i <= Spatial; ++i) sizes[i] = uint64_t(key.sizes[i]);
  sizes[rank - 1] = uint64_t(key.sizes[4]);
  for (int i = 0; i < Spatial; ++i)
    strides[i] = uint64_t(key.strides[i]) * bytes, steps[1 + i] = uint32_t(key.steps[i]);
  strides[Spatial] = uint64_t(key.strides[3]) * bytes;
  return driver().encode_pixels(&map, map_type<T>::value, rank, const_cast<void *>(key.address), sizes, strides,
                                key.lower, key.upper, uint32_t(128 / bytes), pixels, steps, 0, 3, map_promotion, 0);
}

template <class T, int Spatial, int Pixels> struct PixelMap {
  using Key = PixelKey;
  static int encode(const PixelKey &key, TensorMap &map) { return encode_traversal<T, Spatial>(key, Pixels, map); }
};

// A traversal of as many pixels as its key says.
struct TraversalKey : PixelKey {
  int rows;
  bool operator==(const TraversalKey &o) const { return rows == o.rows && PixelKey::operator==(o); }
  uint64_t hash() const { return PixelKey::hash() * 31 + uint64_t(rows); }
};
template <class T, int Spatial> struct TraversalMap {
  using Key = TraversalKey;
  static int encode(const TraversalKey &key, TensorMap &map) {
    return encode_traversal<T, Spatial>(key, uint32_t(key.rows), map);
  }
};

// Rows of pixels of images as they lie: sizes and strides (in elements) of channels, w, h and planes, of which a box has
// some pixels of some rows.
struct TileKey {
  const void *address;
  int64_t sizes[4], strides[3];
  uint32_t pixels, rows;
  bool operator==(const TileKey &o) const {
    bool same = address == o.address && pixels == o.pixels && rows == o.rows;
    for (int i = 0; i < 4; ++i) same = same && sizes[i] == o.sizes[i] && (i == 3 || strides[i] == o.strides[i]);
    return same;
  }
  uint64_t hash() const {
    uint64_t mixed = uint64_t(intptr_t(address)) ^ (pixels << 16 | rows);
    auto mix = [&mixed](int64_t one) { mixed = (mixed ^ uint64_t(one)) * 0x9e3779b97f4a7c15, mixed ^= mixed >> 32; };
    for (int i = 0; i < 4; ++i) mix(sizes[i]);
    for (int i = 0; i < 3; ++i) mix(strides[i]);
    return mixed;
  }
};
// Swizzle: 0, or that of the bytes of a pixel (2: 64, 3: 128).
template <class T, int Channels, int Swizzle = 0> struct TileMap {
  using Key = TileKey;
  static int encode(const TileKey &key, TensorMap &map) {
    constexpr uint64_t bytes = sizeof(T);
    uint64_t sizes[4], strides[3];
    for (int i = 0; i < 4; ++i) sizes[i] = uint64_t(key.sizes[i]);
    for (int i = 0; i < 3; ++i) strides[i] = uint64_t(key.strides[i]) * bytes;
    const uint32_t box[4] = {uint32_t(Channels), key.pixels, key.rows, 1}, steps[4] = {1, 1, 1, 1};
    return driver().encode(&map, map_type<T>::value, 4, const_cast<void *>(key.address), sizes, strides, box, steps, 0,
                           Swizzle, map_promotion, 0);
  }
};

}  // namespace tw::cuda
