// Included before a kernel's file: its device half is compiled for the host, and its launch calls it.
#pragma once
#include <tilewright/emulated/device.h>

#include <tilewright/cuda/gemm/gemm.h>
#include <tilewright/cuda/gemm/tma_ws/kernel.h>

#include <type_traits>
#include <utility>

namespace emulated {

template <class... P, size_t... I> void call(void (*kernel)(P...), void **values, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<P> *>(values[I])...);
}
template <class... P> void call(void (*kernel)(P...), void **values) {
  call(kernel, values, std::index_sequence_for<P...>{});
}

}  // namespace emulated

#define TW_EMULATED_FUNCTION(Symbol) \
  static void tw_emulated_##Symbol(void **values) { emulated::call(Symbol, values); } \
  static emulated::Function tw_function_##Symbol{#Symbol, tw_emulated_##Symbol};
#undef TW_DEVICE_PACK
#define TW_DEVICE_PACK(Config, Symbol) \
  static void Symbol##_pack(const tw::PackArgs x) { \
    tw::pack<Config::B, !Config::b_rows>(x, blockIdx.x * (long long)tw::Pack::threads + threadIdx.x, \
                                         gridDim.x * (long long)tw::Pack::threads); \
  } \
  TW_EMULATED_FUNCTION(Symbol##_pack)
#undef TW_IMAGE
#define TW_IMAGE(Symbol) \
  TW_EMULATED_FUNCTION(Symbol) \
  TW_EMULATED_FUNCTION(Symbol##_repack) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&tw_emulated_##Symbol); }
