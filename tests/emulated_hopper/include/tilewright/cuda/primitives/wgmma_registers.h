// Emulated: cuda/primitives/wgmma_registers.h.
#pragma once
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

TW_GPU void come_behind(float) {}
template <int Left> TW_GPU void wgmma_wait_behind(float) { wgmma_wait<Left>(); }

template <int N, class T, int MajorB> struct WgmmaRegisters {
  static_assert(sizeof(T) == 2 || MajorB == 0, "one-byte operands are read along k");
  static TW_GPU void run(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int add) {
    emulated::wgmma_registers(emulated_element<T>::value, N, MajorB, d, a, b, add);
  }
};

}  // namespace tw
