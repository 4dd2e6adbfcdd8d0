// The host's half of attention's gradients by the ws pipeline with heads over 128.
#pragma once
#include <tilewright/cuda/attention_backward/ws/host.h>
#include <tilewright/cuda/attention_backward/ws/wide/shape.h>

namespace tw::cuda {

template <class Config> using HostAttentionBackwardWide =
    HostAttentionBackwardWs<Config, AttentionBackwardWide<Config>>;

}  // namespace tw::cuda
