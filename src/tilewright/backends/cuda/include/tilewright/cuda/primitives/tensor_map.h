// A tensor map: TMA's descriptor of a matrix.
#pragma once
#include <stdint.h>

namespace tw {

struct alignas(64) TensorMap {
  uint64_t words[16];
};  // opaque: the driver's CUtensorMap

// How the second-level cache treats what comes, in the words of createpolicy: as ever, or as the first to make room again.
constexpr uint64_t cached = 0x1000000000000000, read_once = 0x12f0000000000000;

}  // namespace tw
