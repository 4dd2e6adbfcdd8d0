// The floor on AMD GPUs: the plain loops that CUDA has too.  No CK Tile, no matrix instruction.
#pragma once
#include <tilewright/hip/attention_backward/kernel.h>
#include <tilewright/gpu/attention_backward_loops.h>

namespace tw::hip {

enum class BackwardLoopsPart { keys, rows, bias, slopes };

template <class Config, BackwardLoopsPart part> __global__ void __launch_bounds__(BackwardLoops::threads)
    attention_backward_loops(const BackwardLoopsArgs x) {
#ifdef TW_ON_GPU  // checks of the host's half are compiled without
  const BackwardLooper<Config> looper(x);
  const int64_t team = backward_team();
  if constexpr (part == BackwardLoopsPart::keys) {
    if (team < x.keys) looper.key(team);
  } else if constexpr (part == BackwardLoopsPart::rows) {
    if (team < x.rows) looper.row(team);
  } else if constexpr (part == BackwardLoopsPart::bias) {
    if (team < x.entries()) looper.bias(team);
  } else {
    __shared__ float accum[BackwardLoops::teams];
    looper.slope(blockIdx.x, accum);
  }
#endif
}

template <class Config> struct AttentionBackwardLoops {
  using Args = tw_attention_backward_args;
  static int64_t workspace(const Args &) { return 0; }
  static int run(const Args &x, void *, void *stream) {
    const BackwardLoopsArgs t = backward_loops_args<Config>(x);
    if (int status = launch<BackwardLoopsPart::keys>(t.blocks(t.keys), stream, t)) return status;
    if (int status = launch<BackwardLoopsPart::rows>(t.blocks(t.rows), stream, t)) return status;
    if constexpr (Config::dbias)
      if (int status = launch<BackwardLoopsPart::bias>(t.blocks(t.entries()), stream, t)) return status;
    if constexpr (Config::dalibi) return launch<BackwardLoopsPart::slopes>(t.slopes[0] * t.slopes[1], stream, t);
    return TW_OK;
  }

 private:
  template <BackwardLoopsPart part> static int launch(int64_t blocks, void *stream, const BackwardLoopsArgs &t) {
    return backward_launch(&attention_backward_loops<Config, part>, blocks, unsigned(BackwardLoops::threads), stream,
                           t);
  }
};

}  // namespace tw::hip
