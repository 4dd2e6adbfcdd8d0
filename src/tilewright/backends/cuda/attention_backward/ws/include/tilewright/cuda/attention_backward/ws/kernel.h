// Attention's gradients by the ws pipeline: warp-specialized: producer warps and consumer warpgroups; a block a tile
// of keys.
#pragma once
#include <tilewright/cuda/attention_backward/ws/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention_backward/clear.h>
#include <tilewright/cuda/attention_backward/ws/consumer.h>
#include <tilewright/cuda/primitives/row_store.h>

namespace tw {

// What is left of a block's keys: gradients, or accumulators that others add to.
template <bool Accumulators, class T> struct BackwardLeft {
  using type = T;
};
template <class T> struct BackwardLeft<true, T> {
  using type = float;
};

// Rows of a tile of keys: dk or dv.  Those behind a sequence's last key that memory has room for are 0, as their accumulators are.
// A split's are fp32 accumulators, as many heads of them as there are splits; nobody reads those behind the last key.  `before`:
// columns of the head that are left elsewhere.
template <class S, int D> TW_GPU void store_keys(const float (&accum)[D / 2], float factor, void *base,
                                                 const tw_attention_strides &strides, int columns,
                                                 const AttentionBackwardWsArgs &x, const BackwardItem &item, int who,
                                                 int before = 0) {
  using To = typename BackwardLeft<S::Shares, typename S::T>::type;
  const int room = S::Shares || x.x.starts_k ? item.keys : int(x.x.keys);
  const int64_t first = S::Shares ? prepared_first(x.x.starts_k, item.sequence) : item.first_key;
  const int64_t head = S::Shares ? int64_t(item.head) * x.parts + item.part : item.head;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key =
        item.tile * S::BN + keys_before<S>(who) + int(threadIdx.x % 128) / 32 * 16 + int(threadIdx.x % 32) / 4 + r * 8;
    To *to = nullptr;
    if (key < room)
      to = static_cast<To *>(base) + item.sequence * strides.batch + (first + key) * strides.row + head * strides.head +
           before;
    store_row<D, To>(accum, r, key < item.keys ? (S::Shares ? 1.0f : factor) : 0.0f, to, columns - before);
  }
}
// Rows of packed keys that no sequence has.
template <class S> TW_GPU void clear_unused(const AttentionBackwardWsArgs &x, const BackwardItem &item) {
  const Unused unused = unused_rows(x.x.starts_k, item.sequence, x.x.batch, item.keys, x.x.keys, x.x.total_keys);
  for (int part = 0; part < 2; ++part) {
    const Span span = part ? unused.behind : unused.before;
    for (int64_t key = span.begin + int(threadIdx.x) - 128; key < span.end; key += 128 * S::W) {
      auto *dk = static_cast<typename S::T *>(x.x.dk) + key * x.x.dk_strides.row + item.head * x.x.dk_strides.head;
      auto *dv = static_cast<typename S::T *>(x.x.dv) + key * x.x.dv_strides.row + item.head * x.x.dv_strides.head;
      for (int i = 0; i < int(x.x.head_qk); i += 8) *reinterpret_cast<uint4 *>(dk + i) = uint4{0, 0, 0, 0};
      for (int i = 0; i < int(x.x.head_v); i += 8) *reinterpret_cast<uint4 *>(dv + i) = uint4{0, 0, 0, 0};
    }
  }
}

// A warpgroup's accumulators of its keys; the wide ones have columns of their own (wide/kernel.h).
template <class S, int Size> TW_GPU void store_accumulators(const float (&accum)[Size], float factor, void *base,
                                                            const tw_attention_strides &strides, int columns,
                                                            const AttentionBackwardWsArgs &x, const BackwardItem &item,
                                                            int who) {
  store_keys<S, 2 * Size>(accum, factor, base, strides, columns, x, item, who);
}
template <int Size> TW_GPU void make_zero(float (&accum)[Size]) {
#pragma unroll
  for (int i = 0; i < Size; ++i) accum[i] = 0;
}

template <class S, class Multiplier>
TW_GPU void attention_backward_ws(const TensorMap &map_q, const TensorMap &map_k, const TensorMap &map_v,
                                  const TensorMap &map_o, const TensorMap &map_dq, const AttentionBackwardWsArgs &x) {
  const SharedBackward<S> shared;
  if (threadIdx.x == 0) {
    tma_prefetch(&map_q), tma_prefetch(&map_k), tma_prefetch(&map_v), tma_prefetch(&map_o), tma_prefetch(&map_dq);
    shared.init();
  }
  __syncthreads();
  // Who brings tiles waits later, unless an ordinary load, which a first-level cache may answer, says where they begin.
  if (threadIdx.x >= 32 || x.loose_rows || x.loose_keys) {
    wait_for_kernel_before();
    let_next_kernel_in();
  }
  const BackwardItem item = item_of_block<S>(x, int(blockIdx.x));
  if (threadIdx.x < 128) {
    deallocate_registers<S::producer_registers>();
    const int warp = int(lane_at(threadIdx.x / 32, 0));
    if (warp == 0) {
      if (threadIdx.x == 0) produce_tiles<S>(map_q, map_k, map_v, map_o, x, shared, item);
    } else if (warp > 1) {
      add_dq<S>(map_dq, x, shared, item, warp - 2);
    }
  } else {
    allocate_registers<S::consumer_registers>();
    const int who = int(lane_at(threadIdx.x / 128, 0)) - 1;
    typename Multiplier::Dk dk;
    typename Multiplier::Dv dv;
    make_zero(dk), make_zero(dv);
    Multiplier(x, shared, item, who).run(dk, dv);
    store_accumulators<S>(dv, 1.0f, x.x.dv, x.x.dv_strides, int(x.x.head_v), x, item, who);
    store_accumulators<S>(dk, x.scale, x.x.dk, x.x.dk_strides, int(x.x.head_qk), x, item, who);
    if (!S::Shares && x.x.starts_k && item.tile == 0) clear_unused<S>(x, item);
  }
}

}  // namespace tw

#define TW_DEVICE_BACKWARD_OF(Shape, Multiplier, Symbol) \
  TW_DEVICE_BACKWARD_CLEAR(Symbol) \
  extern "C" __global__ void __launch_bounds__(Shape::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap q, const __grid_constant__ tw::TensorMap k, \
             const __grid_constant__ tw::TensorMap v, const __grid_constant__ tw::TensorMap o, \
             const __grid_constant__ tw::TensorMap dq, const __grid_constant__ tw::AttentionBackwardWsArgs x) { \
    tw::attention_backward_ws<Shape, Multiplier>(q, k, v, o, dq, x); \
  }
#define TW_DEVICE_ATTENTION_BACKWARD_WS(Config, Symbol) \
  using tw_shape_##Symbol = tw::AttentionBackwardWs<Config>; \
  using tw_multiplier_##Symbol = tw::BackwardMultiplier<tw_shape_##Symbol, Config>; \
  TW_DEVICE_BACKWARD_OF(tw_shape_##Symbol, tw_multiplier_##Symbol, Symbol)
#else
#define TW_DEVICE_ATTENTION_BACKWARD_WS(Config, Symbol)
#endif
