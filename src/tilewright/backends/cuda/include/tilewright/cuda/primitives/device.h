// What a Hopper thread needs to know about itself and its neighbours: addresses, votes, barriers.
#pragma once
#include <tilewright/gpu/device.h>

namespace tw {

TW_GPU uint32_t shared_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// The shared memory of a launch.
TW_GPU char *dynamic_shared() {
  extern __shared__ char memory[];
  return memory;
}

// One lane of the warp, always the same one.
TW_GPU bool elect_one() {
  uint32_t chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  return chosen;
}

// A barrier of `threads` threads among the block's; ids 1 to 15 (0 is __syncthreads).
TW_GPU void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
TW_GPU void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// Whether a lane of the warp says so.
TW_GPU bool any_lane(bool x) { return __any_sync(0xffffffffu, x); }

template <int Registers> TW_GPU void deallocate_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers> TW_GPU void allocate_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

TW_GPU uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
TW_GPU void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same where nobody reads what a neighbour's threads wrote (barriers have a fence of their own): the other one waits
// for all that was written before it, also to memory.
TW_GPU void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Four floats from the same place in the shared memory of another block of the cluster; `own`, which is what lies there
// in this one, where it is the block itself that is meant.
TW_GPU float4 load_neighbour(const void *p, uint32_t rank, uint32_t me, const float4 &own) {
  float4 v = own;
  asm volatile(
      "{ .reg .b32 there; .reg .pred other; setp.ne.u32 other, %5, %6; mapa.shared::cluster.u32 there, %4, %5; "
      "@other ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
      : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)
      : "r"(shared_address(p)), "r"(rank), "r"(me)
      : "memory");
  return v;
}

// A kernel that was launched early runs beside the one before it: it waits here for all that one wrote.  That one says
// when the next may come in.  Code for GPUs before sm_90 has no such instructions: its kernels must not be launched early.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
TW_GPU void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TW_GPU void let_next_kernel_in() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
TW_GPU void wait_for_kernel_before() {}
TW_GPU void let_next_kernel_in() {}
#endif

// Said before copies that do not wait for the kernel before: what they read was there when that one began, which waited
// for all before it and only then let this one in.
TW_GPU void operands_are_there() {}

// Ordinary writes to shared memory become visible to TMA and the tensor cores.
TW_GPU void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tw
