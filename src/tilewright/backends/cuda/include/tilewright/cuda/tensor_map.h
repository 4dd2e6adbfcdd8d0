// A tensor map: how the copy engine is told where a matrix is.
#pragma once
#include <stdint.h>

namespace tw {

struct alignas(64) TensorMap {
  uint64_t words[16];
};  // opaque: the driver's CUtensorMap

}  // namespace tw
