// What the special-function units compute, to about the last bit but one.
#pragma once
#include <tilewright/gpu/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw {

// 2^x; numbers too small for a float are 0.
TW_GPU float exp2_fast(float x) { return __builtin_amdgcn_exp2f(x); }

// 1 / x.
TW_GPU float reciprocal_fast(float x) { return __builtin_amdgcn_rcpf(x); }

}  // namespace tw
#elif defined(TW_ON_GPU)
namespace tw {

// The host's pass only names them.
TW_GPU float exp2_fast(float x) { return x; }
TW_GPU float reciprocal_fast(float x) { return x; }

}  // namespace tw
#endif
