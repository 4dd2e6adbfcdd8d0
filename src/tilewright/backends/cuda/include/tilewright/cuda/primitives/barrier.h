// Transaction barriers in shared memory: producers announce bytes, consumers wait for a phase.
#pragma once
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/ring.h>

namespace tw {

struct Barrier {
  uint64_t word;

  TW_GPU void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)), "r"(arrivals) : "memory");
  }
  TW_GPU void expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)), "r"(bytes)
                 : "memory");
  }
  TW_GPU void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word)) : "memory");
  }
  // The same barrier in another block of the cluster.
  TW_GPU void arrive_at(uint32_t rank) {
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; "
        "}" ::"r"(shared_address(&word)),
        "r"(rank)
        : "memory");
  }
  // Whether a wait would be over; and a wait for what was there or not when it was tested.  In one instruction's place:
  // ptxas waits for each wgmma by itself beside branches it can see.
  TW_GPU uint32_t there(uint32_t phase) {
    uint32_t done;
    asm volatile(
        "{ .reg .pred done; mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, 1, 0, done; }"
        : "=r"(done)
        : "r"(shared_address(&word)), "r"(phase)
        : "memory");
    return done;
  }
  TW_GPU void wait_unless(uint32_t there, uint32_t phase) {
    asm volatile(
        "{ .reg .pred done;\n"
        "setp.ne.u32 done, %2, 0;\n"
        "@done bra over;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "over: }" ::"r"(shared_address(&word)),
        "r"(phase), "r"(there)
        : "memory");
  }
  TW_GPU void wait(uint32_t phase) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(shared_address(&word)),
        "r"(phase)
        : "memory");
  }
};

// Barriers just made become visible to TMA and to the cluster.
TW_GPU void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

}  // namespace tw
