// The floor on AMD GPUs: the plain loops that CUDA has too, behind the C ABI.  No CK Tile, no matrix instruction.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/gpu/attention_loops.h>
#include <tilewright/select/attention_args.h>

namespace tw::hip {

template <class Config> __global__ void __launch_bounds__(AttentionLoopsShape::threads)
    attention_loops_block(const typename attention_args_of<Config::family>::type x, long long units) {
#ifdef TW_ON_GPU  // checks of the host's half are compiled without
  constexpr int floats = AttentionLoopsShape::shared_floats<Config>;
  __shared__ float shared[floats > 0 ? floats : 1];
  attention_loops<Config>(x, units, shared);
#endif
}

template <class Config, class Limits> struct AttentionLoopsKernel : PlainKernel {
  using Args = typename attention_args_of<Config::family>::type;
  static int check(const void *args, char *why, size_t bytes) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_of<Config>(x);
    return common.code ? say(common, why, bytes) : selection::check_limits<Config, Limits>(*x, why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    Args x = *static_cast<const Args *>(args);
    if (no_rows(x)) return TW_OK;
    long long units = AttentionLoopsShape::units<Config>(x);
    void *words[] = {&x, &units};
    const auto kernel = reinterpret_cast<const void *>(&attention_loops_block<Config>);
    const hipError_t error =
        hipLaunchKernel(kernel, dim3(AttentionLoopsShape::blocks<Config>(x)), dim3(AttentionLoopsShape::threads), words,
                        0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }
};

}  // namespace tw::hip
