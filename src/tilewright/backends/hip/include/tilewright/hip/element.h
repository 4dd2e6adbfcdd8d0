// Elements on their way from memory to matrix instructions.
#pragma once
#include <tilewright/gpu/types.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// An element as the matrix instructions take it: every fp8 is exactly a bf16 and an fp16, every bf16 and fp16 an fp32.
template <class M, class T> TW_GPU M converted(T x) {
  if constexpr (std::is_same_v<M, T>) return x;
  else if constexpr (std::is_same_v<M, bf16>) return bf16{uint16_t(__float_as_uint(to_float(x)) >> 16)};
  else {
    M y;
    round_to(to_float(x), y);
    return y;
  }
}

}  // namespace tw::hip
#endif
