// What a consumer warpgroup of a tma_ws kernel does with the stages of a segment.
#pragma once
#include <tilewright/cuda/gemm/tma_ws/splits.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// Every block that writes into this one's stages hears that one is free.
template <class S> TW_GPU void give_back(Barrier *empty, int stage, const Place<S> &place) {
  int target = threadIdx.x % 128;
  if constexpr (S::Group == 1) {
    if (target == 0) empty[stage].arrive();
  } else {
    if (target < S::Group && (target % S::ClusterM == place.m || target / S::ClusterM == place.n))
      empty[stage].arrive_at(target);
  }
}

// The accumulators stay where they are while wgmma may write them.
template <class S> TW_GPU void hold_all(Accumulators<S> &d) {
#pragma unroll
  for (int i = 0; i < S::blocks_m; ++i) hold(d[i]);
}

// The warpgroup's rows of a stage's A times the stage's B, on top of what was there (the first stage: nothing).
template <class S, bool First>
TW_GPU void multiply_stage(Accumulators<S> &d, const SharedMemory<S> &shared, int stage, int who) {
  hold_all<S>(d);
  wgmma_fence();
  const uint32_t a = stage * (S::stage_bytes / 16) + (S::PingPong ? 0 : who * (S::rows * 128 / 16)),
                 b = stage * (S::stage_bytes / 16) + S::a_bytes / 16;
  const uint64_t along_k = operand(shared.stages), along_lines = operand(shared.stages, 1024, 8192);
  const uint64_t at_a = further(S::MajorA ? along_lines : along_k, a),
                 at_b = further(S::MajorB ? along_lines : along_k, b);
  constexpr int a_next = S::MajorA ? 16 * 128 / 16 : 2, b_next = S::MajorB ? 16 * 128 / 16 : 2;  // one instruction's k
#pragma unroll
  for (int kk = 0; kk < 4; ++kk)
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
      Wgmma<S::BN, typename S::In, S::MajorA, S::MajorB>::run(d[i], further(at_a, i * 8192 / 16 + kk * a_next),
                                                              further(at_b, kk * b_next), !First || kk > 0);
  wgmma_commit();
  hold_all<S>(d);
}

// `beside()` runs once, while the first stage is multiplied.
template <class S, class Beside> TW_GPU void multiply_segment(Accumulators<S> &d, int steps, Ring<S::Stages> &ring,
                                                              const SharedMemory<S> &shared, const Place<S> &place,
                                                              int who, Beside beside) {
  shared.full[ring.stage].wait(ring.phase);
  multiply_stage<S, true>(d, shared, ring.stage, who);
  int before = ring.stage;
  ring.next();
  beside();
#pragma unroll(S::blocks_m *S::BN > 64 ? 1 : 4)  // k-blocks of wide tiles are long enough by themselves
  for (int step = 1; step < steps; ++step) {
    shared.full[ring.stage].wait(ring.phase);
    multiply_stage<S, false>(d, shared, ring.stage, who);
    // One multiply stays in flight; the stage before it is done and goes back.
    wgmma_wait<1>();
    give_back<S>(shared.empty, before, place);
    before = ring.stage;
    ring.next();
  }
  wgmma_wait<0>();
  hold_all<S>(d);
  give_back<S>(shared.empty, before, place);
}

}  // namespace tw
