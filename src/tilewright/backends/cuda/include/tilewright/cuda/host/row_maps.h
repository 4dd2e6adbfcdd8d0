// Tensor maps of rows of heads: queries, keys, values, or pages of these.
#pragma once
#include <tilewright/cuda/host/tensor_maps.h>

namespace tw::cuda {

// Sizes and strides (in elements) of a head's elements, rows, heads, and sequences or pages; rows of a box.
struct RowsKey {
  const void *address;
  int64_t sizes[4], strides[3];
  uint32_t rows;
  bool operator==(const RowsKey &o) const {
    bool same = address == o.address && rows == o.rows;
    for (int i = 0; i < 4; ++i) same = same && sizes[i] == o.sizes[i] && (i == 3 || strides[i] == o.strides[i]);
    return same;
  }
  uint64_t hash() const {
    uint64_t mixed = uint64_t(intptr_t(address)) ^ rows;
    auto mix = [&mixed](int64_t one) { mixed = (mixed ^ uint64_t(one)) * 0x9e3779b97f4a7c15, mixed ^= mixed >> 32; };
    for (int i = 0; i < 4; ++i) mix(sizes[i]);
    for (int i = 0; i < 3; ++i) mix(strides[i]);
    return mixed;
  }
};

// Boxes of 128 bytes of so many rows, swizzled.
template <class T> struct RowsMap {
  using Key = RowsKey;
  static int encode(const RowsKey &key, TensorMap &map) {
    constexpr uint64_t bytes = sizeof(T);
    uint64_t sizes[4], strides[3], whole = uint64_t(key.sizes[0] + 15) / 16 * 16 * bytes;
    for (int i = 0; i < 4; ++i) sizes[i] = uint64_t(key.sizes[i]);
    for (int i = 0; i < 3; ++i)  // what there is one of has no stride, and none may be 0 for the engine
      strides[i] = key.sizes[i + 1] > 1 ? uint64_t(key.strides[i]) * bytes : whole;
    const uint32_t box[4] = {uint32_t(128 / bytes), key.rows, 1, 1}, steps[4] = {1, 1, 1, 1};
    return driver().encode(&map, map_type<T>::value, 4, const_cast<void *>(key.address), sizes, strides, box, steps, 0,
                           3, map_promotion, 0);
  }
};

}  // namespace tw::cuda
