// Tensor maps of problems seen before.  A map says where a matrix is and how it is laid out, nothing about
// what is in it or who owns it: it stays right when memory is freed and handed out again.
#pragma once
#include <tilewright/cuda/host/driver.h>
#include <tilewright/cuda/primitives/tensor_map.h>
#include <tilewright/gpu/types.h>

namespace tw::cuda {

// An operand as TMA sees it: x contiguous, y lines a stride apart, z the batch.
struct MapKey {
  const void *address;
  int64_t x, y, z, stride, batch_stride;
  bool operator==(const MapKey &o) const {
    return address == o.address && x == o.x && y == o.y && z == o.z && stride == o.stride &&
           batch_stride == o.batch_stride;
  }
  uint64_t hash() const {
    const int64_t all[6] = {int64_t(intptr_t(address)), x, y, z, stride, batch_stride};
    uint64_t mixed = 0;
    for (int64_t one : all) mixed = (mixed ^ uint64_t(one)) * 0x9e3779b97f4a7c15, mixed ^= mixed >> 32;
    return mixed;
  }
};

template <class T> struct map_type;  // CUtensorMapDataType
template <> struct map_type<bf16> {
  static constexpr int value = 9;
};
template <> struct map_type<fp16> {
  static constexpr int value = 6;
};
template <> struct map_type<float> {
  static constexpr int value = 7;
};
template <> struct map_type<fp8_e4m3> {
  static constexpr int value = 0;
};
template <> struct map_type<fp8_e5m2> {
  static constexpr int value = 0;
};
template <> struct map_type<int8> {
  static constexpr int value = 0;
};  // bytes
template <> struct map_type<tf32> {
  static constexpr int value = 11;
};  // floats, rounded on the way

// A repeated call encodes nothing, also where a loop goes through the weights of hundreds of layers.  A key
// lies in one of the `near` places from its hash on; where these are full, one of them makes room.
// Kind: Key, and encode(key, map), which answers 0 or the driver's error.
template <class Kind> struct KnownMaps {
  using Key = typename Kind::Key;
  static constexpr unsigned size = 1024, near = 16;
  struct Entry {
    Key key;
    TensorMap map;
  };
  Lock lock{};
  unsigned turn = 0;
  Entry entries[size] = {};

  int get(const Key &key, TensorMap &map) {
    const unsigned first = unsigned(key.hash() % size);
    lock.take();
    const Entry *found = &entries[place(key, first)];
    const bool known = found->key == key;
    if (known) map = found->map;
    lock.give();
    if (known) return 0;
    if (int error = Kind::encode(key, map)) return error;
    lock.take();
    Entry &made = entries[place(key, first)];
    made.key = key, made.map = map;
    lock.give();
    return 0;
  }

 private:
  // Where the key is, else where it should go.  No address is null, so an empty place equals no key.
  unsigned place(const Key &key, unsigned first) {
    for (unsigned i = 0; i < near; ++i) {
      const Key &here = entries[(first + i) % size].key;
      if (here == key || !here.address) return (first + i) % size;
    }
    return (first + turn++ % near) % size;
  }
};

constexpr int map_promotion = 2;  // into the second-level cache 128 bytes at a time: 256 were slower on an H200

// Boxes of x by y; 0, or the driver's error.
template <class T> int encode_boxes(const MapKey &key, uint32_t x, uint32_t y, int swizzle, TensorMap &map) {
  // A broadcast batch is one matrix, a batch of one has no stride: neither may be 0 for the engine.
  constexpr uint64_t bytes = sizeof(T);
  const uint64_t sizes[3] = {uint64_t(key.x), uint64_t(key.y), uint64_t(key.z)};
  const uint64_t strides[2] = {uint64_t(key.stride) * bytes,
                               uint64_t(key.z > 1 ? key.batch_stride : key.stride * key.y) * bytes};
  const uint32_t box[3] = {x, y, 1}, steps[3] = {1, 1, 1};
  return driver().encode(&map, map_type<T>::value, 3, const_cast<void *>(key.address), sizes, strides, box, steps, 0,
                         swizzle, map_promotion, 0);
}
template <class T, int BoxX, int BoxY, int Swizzle> struct BoxMap {
  using Key = MapKey;
  static int encode(const MapKey &key, TensorMap &map) { return encode_boxes<T>(key, BoxX, BoxY, Swizzle, map); }
};
template <class T, int BoxX, int BoxY, int Swizzle> using MapCache = KnownMaps<BoxMap<T, BoxX, BoxY, Swizzle>>;

// Chunks of results or of what is added to them, swizzled as wide as their rows are.
template <class T, int BoxX, int BoxY> using ChunkMaps = MapCache<T, BoxX, BoxY, BoxX == 64 ? 3 : BoxX == 32 ? 2 : 1>;

}  // namespace tw::cuda
