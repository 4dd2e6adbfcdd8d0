// Emulated: cuda/primitives/wgmma.h.
#pragma once
#include <tilewright/cuda/primitives/operand.h>
#include <tilewright/gpu/activation.h>

namespace tw {

TW_GPU void wgmma_fence() { emulated::wgmma_fence(); }
TW_GPU void wgmma_commit() { emulated::wgmma_commit(); }
template <int Left> TW_GPU void wgmma_wait() { emulated::wgmma_wait(Left); }
template <class Sum, int Count> TW_GPU void hold(Sum (&)[Count]) {}

template <class T> struct emulated_element;
template <> struct emulated_element<bf16> {
  static constexpr auto value = emulated::bf16_element;
};
template <> struct emulated_element<fp16> {
  static constexpr auto value = emulated::fp16_element;
};
template <> struct emulated_element<fp8_e4m3> {
  static constexpr auto value = emulated::e4m3_element;
};
template <> struct emulated_element<fp8_e5m2> {
  static constexpr auto value = emulated::e5m2_element;
};
template <> struct emulated_element<tf32> {
  static constexpr auto value = emulated::tf32_element;
};
template <> struct emulated_element<int8> {
  static constexpr auto value = emulated::int8_element;
};

template <int N, class T, int MajorA, int MajorB> struct Wgmma {
  static_assert(sizeof(T) == 2 || (MajorA == 0 && MajorB == 0), "one-byte operands are read along k");
  static TW_GPU void run(typename sum_of<T>::type (&d)[N / 2], uint64_t a, uint64_t b, int add) {
    emulated::wgmma(emulated_element<T>::value, N, MajorA, MajorB, d, a, b, add);
  }
};

template <class T> TW_GPU uint32_t pair(T, float x, float y) {
  T low, high;
  round_to(x, low);
  round_to(y, high);
  return uint32_t(low.bits) | uint32_t(high.bits) << 16;
}
template <class T> TW_GPU uint32_t pair_at_least_0(T type, float x, float y) {
  return pair(type, at_least(x, 0.0f), at_least(y, 0.0f));
}
TW_GPU void store_matrices(void *row, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth) {
  emulated::store_matrices(row, first, second, third, fourth, false);
}
TW_GPU void store_matrices_transposed(void *row, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth) {
  emulated::store_matrices(row, first, second, third, fourth, true);
}
TW_GPU void read_matrices(uint32_t (&to)[4], const void *row) { emulated::read_matrices(to, row); }

}  // namespace tw
