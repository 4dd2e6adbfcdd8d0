// Emulated: cuda/copies/copies.h.
#pragma once
#include <tilewright/cuda/primitives/device.h>

#include "../../../../ampere.h"

namespace tw {

struct alignas(16) Word16 {
  uint32_t w[4];
};

TW_GPU int thread_index() { return int(threadIdx.x); }
TW_GPU int block_index() { return int(blockIdx.x); }
TW_GPU int block_count() { return int(gridDim.x); }
TW_GPU void block_barrier() { __syncthreads(); }

template <int Bytes> TW_GPU void copy_async(char *to, const char *from, int valid) {
  emulated::copy_async(to, from, Bytes, valid);
}
TW_GPU void commit_copies() { emulated::commit_copies(); }
template <int Left> TW_GPU void wait_copies() { emulated::wait_copies(Left); }

template <bool Once, int Words> TW_GPU void read_words(uint32_t (&to)[Words], const void *p) {
  if (reinterpret_cast<uintptr_t>(p) % (4 * Words)) emulated::stop("a load of words that are not aligned");
  memcpy(to, p, sizeof to);
}

template <class T> TW_GPU T load_shared(const void *p) {
  T x;
  emulated::touch(p, sizeof x, false);
  memcpy(&x, p, sizeof x);
  return x;
}
template <class T> TW_GPU void store_shared(void *p, const T &x) {
  emulated::touch(p, sizeof x, true);
  memcpy(p, &x, sizeof x);
}

TW_GPU uint32_t funnel(uint32_t low, uint32_t high, int bits) {
  return uint32_t((uint64_t(high) << 32 | low) >> (bits & 31));
}
TW_GPU uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = uint64_t(high) << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= uint32_t(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return out;
}

}  // namespace tw
