// Attention's gradients by the ws pipeline with heads over 128: as ws/kernel.h, with columns shared out among warpgroups.
#pragma once
#include <tilewright/cuda/attention_backward/ws/kernel.h>
#include <tilewright/cuda/attention_backward/ws/wide/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/attention_backward/ws/wide/consumer.h>

namespace tw {

// A warpgroup's columns of dk or dv.
template <class S, int Whole, bool Odd>
TW_GPU void store_accumulators(const BackwardWideAccumulators<Whole, Odd> &accum, float factor, void *base,
                               const tw_attention_strides &strides, int columns, const AttentionBackwardWsArgs &x,
                               const BackwardItem &item, int who) {
  if constexpr (Whole > 0)
    store_keys<S, Whole * 64>(accum.whole, factor, base, strides, columns, x, item, who, who * Whole * 64);
  if constexpr (Odd)
    if (who == 0) store_keys<S, 64>(accum.shared, factor, base, strides, columns, x, item, who, 2 * Whole * 64);
}

}  // namespace tw

#define TW_DEVICE_ATTENTION_BACKWARD_WIDE(Config, Symbol) \
  using tw_shape_##Symbol = tw::AttentionBackwardWide<Config>; \
  using tw_multiplier_##Symbol = tw::BackwardWideMultiplier<tw_shape_##Symbol, Config>; \
  TW_DEVICE_BACKWARD_OF(tw_shape_##Symbol, tw_multiplier_##Symbol, Symbol)
#else
#define TW_DEVICE_ATTENTION_BACKWARD_WIDE(Config, Symbol)
#endif
