// The host's half of combining splits of attention.
#pragma once
#include <tilewright/cuda/attention/combine/kernel.h>
#include <tilewright/cuda/host/launch.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config> struct HostAttentionCombine {
  using S = AttentionCombine<Config>;
  using Args = tw_attention_combine_args;
  static constexpr int64_t clear_bytes = 0;

  static Answer broken(const Args &x) {
    if (no_rows(x)) return {};
    const int64_t four = x.part_strides.batch | x.part_strides.row | x.part_strides.head | x.part_split;
    if (uintptr_t(x.parts) % 16 || four % 4)
      return {TW_ALIGNMENT, "an address or a stride of the parts is not a multiple of 16 bytes"};
    return {};
  }
  static int64_t workspace(const Args &) { return 0; }
  // Where it can it comes in while the splits are still computed, and waits for them itself.
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), 1, false, Config::early};
  }
  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    Args t = x;
    const double rows = double(x.batch) * x.heads_q * x.rows, most = place.multiprocessors * 16.0;
    const double blocks = (rows + S::teams - 1) / S::teams;
    return start(place.functions[0], {unsigned(blocks < most ? blocks : most)}, shape(), stream, t);
  }
};

}  // namespace tw::cuda
