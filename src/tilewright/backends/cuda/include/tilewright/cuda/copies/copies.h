// What the multistage pipeline needs of a thread's device: who it is, copies that run beside it, words in
// shared memory.  (Emulated on the host for tests: see tests/emulated_hopper.)
#pragma once
#include <tilewright/cuda/primitives/device.h>

namespace tw {

struct alignas(16) Word16 {
  uint32_t w[4];
};

TW_GPU int thread_index() { return threadIdx.x; }
TW_GPU int block_index() { return blockIdx.x; }
TW_GPU int block_count() { return gridDim.x; }
TW_GPU void block_barrier() { __syncthreads(); }

// `valid` of `Bytes` bytes from memory to shared memory, zeros for the rest; both ends aligned to Bytes.
// There when a wait says so and, for other threads, after a barrier behind it.
template <int Bytes> TW_GPU void copy_async(char *to, const char *from, int valid) {
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid));
  else
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %3, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid), "n"(Bytes));
}
TW_GPU void commit_copies() { asm volatile("cp.async.commit_group;"); }
// All but the last `Left` commits have landed.
template <int Left> TW_GPU void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory"); }

// Two or four words of memory nobody writes; Once: they are not kept where they would push out others.
template <bool Once, int Words> TW_GPU void read_words(uint32_t (&to)[Words], const void *p) {
  static_assert(Words == 2 || Words == 4, "eight or sixteen bytes");
  if constexpr (Once && Words == 4)
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(p));
  else if constexpr (Once)
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(p));
  else if constexpr (Words == 4) {
    const uint4 v = __ldg(static_cast<const uint4 *>(p));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    const uint2 v = __ldg(static_cast<const uint2 *>(p));
    to[0] = v.x, to[1] = v.y;
  }
}

template <class T> TW_GPU T load_shared(const void *p) { return *static_cast<const T *>(p); }
template <class T> TW_GPU void store_shared(void *p, const T &x) { *static_cast<T *>(p) = x; }

// Four bytes that begin `bits` behind the start of low:high (0 to 31).
TW_GPU uint32_t funnel(uint32_t low, uint32_t high, int bits) { return __funnelshift_r(low, high, bits); }
// Bytes of low (0 to 3) and high (4 to 7) by the digits of the selector.
TW_GPU uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) { return __byte_perm(low, high, selector); }

}  // namespace tw
