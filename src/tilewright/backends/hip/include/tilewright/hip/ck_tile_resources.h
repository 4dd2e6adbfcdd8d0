// CK Tile's core, with buffer resources that stay in scalar registers.
//
// CK Tile turns the four words of a resource into the compiler's type by copying bytes.  LLVM 22 then keeps a place in
// scratch memory for every such copy, which nothing ever reads: enough to make a kernel request scratch at its launch.
// Here that one copy is made of the words themselves.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__)
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#include <stdint.h>
#include <stdio.h>

// All that CK Tile's core includes: none of it may see the macro below.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tw::hip {

template <class To, class From> inline __device__ void same_bytes(To *to, const From *from) {
  static_assert(std::is_same_v<To, __amdgpu_buffer_rsrc_t>, "the one copy of CK Tile's core is of a resource");
  const uint64_t low = uint32_t((*from)[0]), high = uint32_t((*from)[1]);
  *to = __builtin_amdgcn_make_buffer_rsrc(reinterpret_cast<void *>(low | high << 32), 0, (*from)[2], (*from)[3]);
}

}  // namespace tw::hip

#define memcpy(to, from, size) ::tw::hip::same_bytes(to, from)
#include <ck_tile/core.hpp>
#undef memcpy
#endif
