// Emulated: cuda/primitives/device.h.
#pragma once
#include <tilewright/emulated/device.h>

namespace tw {

TW_GPU uint32_t shared_address(const void *p) { return emulated::shared_address(p); }
TW_GPU char *dynamic_shared() { return emulated::dynamic_shared(); }
TW_GPU bool elect_one() { return threadIdx.x % 32 == 0; }
TW_GPU void named_barrier(int id, int threads) { emulated::named_barrier(id, threads, true); }
TW_GPU void named_arrive(int id, int threads) { emulated::named_barrier(id, threads, false); }
template <int Registers> TW_GPU void deallocate_registers() {}
template <int Registers> TW_GPU void allocate_registers() {}
TW_GPU uint32_t cluster_rank() { return emulated::cluster_rank(); }
TW_GPU float4 load_neighbour(const void *p, uint32_t rank, uint32_t me, const float4 &own) {
  float4 v = own;
  if (rank != me) memcpy(&v, emulated::neighbour(p, sizeof v, rank), sizeof v);
  return v;
}
TW_GPU void wait_for_kernel_before() { emulated::wait_for_kernel_before(); }
TW_GPU void operands_are_there() { emulated::wait_for_kernel_before(); }
TW_GPU void let_next_kernel_in() {}
TW_GPU void cluster_sync() { emulated::cluster_sync(true); }
TW_GPU void cluster_sync_relaxed() { emulated::cluster_sync(false); }
TW_GPU void fence_async_proxy() { emulated::fence_async_proxy(); }

}  // namespace tw
