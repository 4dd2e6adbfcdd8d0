// Attention's gradients by the ws pipeline with heads over 128: as ws/kernel.h, with columns shared out among warpgroups.
#pragma once
#include <tilewright/cuda/attention_backward/ws/kernel.h>
#include <tilewright/cuda/attention_backward/ws/wide/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention_backward/ws/wide/consumer.h>

namespace tw {

// A warp, for warpgroup `who`; one lane of it works.
template <class S> TW_GPU void add_pieces(const TensorMap &map, const AttentionBackwardWsArgs &x,
                                          const SharedBackward<S> &shared, const BackwardItem &item, int who) {
  const int lane = int(threadIdx.x % 32), first_row = int(prepared_first(x.x.starts_q, item.sequence));
  const int of_rows = x.x.starts_q ? 0 : item.sequence;
  BackwardSteps steps(item, x.group);
  if (steps.more()) named_arrive(backward_dq_empty + who, 160);
#pragma unroll 1
  while (steps.more()) {
    const int tile = steps.tile, head = steps.head, row = first_row + tile * S::BM;
    steps.next();
    unsigned *turn = nullptr;
    if (lane == 0) turn = await_turn<S>(x, item, tile, head, who);
    __syncwarp();
#pragma unroll 1
    for (int piece = 0; piece < S::pieces; ++piece) {
      const bool last = piece + 1 == S::pieces, half = piece == S::whole_d;
      named_barrier(backward_dq_full + who, 160);
      if (lane == 0) {
        const int column = (half ? S::blocks_d - 1 : who * S::whole_d + piece) * 64;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (j < 2 || !half)
            tma_add_rows(&map, shared.dq(who) + j * S::box_bytes, column + j % 2 * 32,
                         row + (half ? who : j / 2) * S::dq_rows, head, of_rows);
        tma_commit();
        tma_wait_read<0>();
      }
      __syncwarp();
      if (!last || steps.more()) named_arrive(backward_dq_empty + who, 160);
    }
    if (turn) pass_turn(turn);
  }
  if (lane == 0) tma_wait_written<0>();
}

// A warpgroup's columns of dk or dv.
template <class S, int Blocks, int Whole, bool Odd>
TW_GPU void leave_blocks(const BackwardWideSums<Whole, Odd> &sums, float factor, void *base,
                         const tw_attention_strides &strides, int columns, const AttentionBackwardWsArgs &x,
                         const BackwardItem &item, int who) {
  if constexpr (Whole > 0)
    leave_keys<S, Whole * 64>(sums.whole, factor, base, strides, columns, x, item, who, who * Whole * 64);
  if constexpr (Odd)
    if (who == 0) leave_keys<S, 64>(sums.shared, factor, base, strides, columns, x, item, who, (Blocks - 1) * 64);
}

template <class S, class Config>
TW_GPU void attention_backward_wide(const TensorMap &map_q, const TensorMap &map_k, const TensorMap &map_v,
                                    const TensorMap &map_o, const TensorMap &map_dq, const AttentionBackwardWsArgs &x) {
  const SharedBackward<S> shared;
  if (threadIdx.x == 0) {
    tma_prefetch(&map_q), tma_prefetch(&map_k), tma_prefetch(&map_v), tma_prefetch(&map_o), tma_prefetch(&map_dq);
    shared.init();
  }
  __syncthreads();
  wait_for_kernel_before();
  let_next_kernel_in();
  const BackwardItem item = item_of_block<S>(x);
  if (threadIdx.x < 128) {
    give_registers<S::feeding_registers>();
    const int warp = int(lane_at(threadIdx.x / 32, 0));
    if (warp == 0) {
      if (threadIdx.x == 0) feed_tiles<S>(map_q, map_k, map_v, map_o, x, shared, item);
    } else if (warp == 1) {
      feed_numbers<S>(x, shared, item);
    } else {
      add_pieces<S>(map_dq, x, shared, item, warp - 2);
    }
  } else {
    take_registers<S::multiplying_registers>();
    const int who = int(lane_at(threadIdx.x / 128, 0)) - 1;
    BackwardWideMultiplier<S, Config> multiplier(x, shared, item, who);
    typename BackwardWideMultiplier<S, Config>::Dk dk;
    typename BackwardWideMultiplier<S, Config>::Dv dv;
    multiplier.run(dk, dv);
    leave_blocks<S, S::blocks_v>(dv, 1.0f, x.x.dv, x.x.dv_strides, int(x.x.head_v), x, item, who);
    leave_blocks<S, S::blocks_d>(dk, x.scale, x.x.dk, x.x.dk_strides, int(x.x.head_qk), x, item, who);
    if (!S::Shares && x.x.starts_k && item.tile == 0) clear_unused<S>(x, item);
  }
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_BACKWARD_WIDE(Config, Symbol) \
  TW_DEVICE_BACKWARD_CLEAR(Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::AttentionBackwardWide<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap q, const __grid_constant__ tw::TensorMap k, \
             const __grid_constant__ tw::TensorMap v, const __grid_constant__ tw::TensorMap o, \
             const __grid_constant__ tw::TensorMap dq, const __grid_constant__ tw::AttentionBackwardWsArgs x) { \
    tw::attention_backward_wide<tw::AttentionBackwardWide<Config>, Config>(q, k, v, o, dq, x); \
  }
#else
#define TW_DEVICE_ATTENTION_BACKWARD_WIDE(Config, Symbol)
#endif
