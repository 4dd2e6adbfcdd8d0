// The host's half of attention by the fp8 pipeline: as that of ws.
#pragma once
#include <tilewright/cuda/attention/fp8/shape.h>
#include <tilewright/cuda/attention/ws/host.h>

namespace tw::cuda {

template <class Config> struct HostAttentionFp8 : HostAttentionWs<Config, AttentionFp8<Config>> {};

}  // namespace tw::cuda
