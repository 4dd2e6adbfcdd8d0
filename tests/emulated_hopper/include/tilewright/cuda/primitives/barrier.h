// Emulated: cuda/primitives/barrier.h.
#pragma once
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/ring.h>

namespace tw {

struct Barrier {
  uint64_t word;

  TW_GPU void init(uint32_t arrivals) { emulated::barrier_init(&word, arrivals); }
  TW_GPU void expect(uint32_t bytes) { emulated::barrier_arrive(&word, bytes, -1); }
  TW_GPU void arrive() { emulated::barrier_arrive(&word, 0, -1); }
  TW_GPU void arrive_at(uint32_t rank) { emulated::barrier_arrive(&word, 0, int(rank)); }
  TW_GPU uint32_t there(uint32_t) { return 0; }
  TW_GPU void wait_unless(uint32_t, uint32_t phase) { wait(phase); }
  TW_GPU void wait(uint32_t phase) { emulated::barrier_wait(&word, phase); }
};

TW_GPU void fence_barriers() {}

}  // namespace tw
