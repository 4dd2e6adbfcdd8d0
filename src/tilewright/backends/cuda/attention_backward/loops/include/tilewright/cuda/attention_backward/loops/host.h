// The host's half of the loops of attention's gradients: a launch for each result.
#pragma once
#include <tilewright/cuda/attention_backward/loops/shape.h>
#include <tilewright/cuda/attention_backward/mma/host.h>

namespace tw::cuda {

template <class Config> struct HostAttentionBackwardLoops {
  using Args = tw_attention_backward_args;
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(BackwardLoops::threads), 128}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    BackwardLoopsArgs t{backward_call<Config>(x), 0, 0, {}, {}};
    t.keys = at_least(x.keys, x.starts_k) * x.batch * (sums_of_dkv<Config> ? x.heads_q : x.heads_kv);
    t.rows = at_least(x.rows, x.starts_q) * x.batch * x.heads_q;
    const BackwardAddedArgs added = added_of<Config>(x);
    int64_t entries = 1;
    for (int i = 0; i < 4; ++i) t.bias_sizes[i] = added.bias_sizes[i], entries *= added.bias_sizes[i];
    t.slopes[0] = added.alibi_sizes[0], t.slopes[1] = added.alibi_sizes[1];
    if (int status = teams(place.functions[0], t.keys, stream, t)) return status;
    if (int status = teams(place.functions[1], t.rows, stream, t)) return status;
    if (Config::dbias)
      if (int status = teams(place.functions[2], entries, stream, t)) return status;
    const int64_t slopes = t.slopes[0] * t.slopes[1];
    return Config::dalibi && slopes ? start(place.functions[3], {unsigned(slopes)}, shape(), stream, t) : TW_OK;
  }

 private:
  // Packed lines that no sequence has are the first one's, of a sequence without any too.
  static int64_t at_least(int64_t lines, const void *starts) { return starts && lines < 1 ? 1 : lines; }
  static int teams(Function function, int64_t count, void *stream, BackwardLoopsArgs &t) {
    if (count == 0) return TW_OK;
    return start(function, {unsigned(ceil_div(count, BackwardLoops::teams))}, shape(), stream, t);
  }
};

}  // namespace tw::cuda
