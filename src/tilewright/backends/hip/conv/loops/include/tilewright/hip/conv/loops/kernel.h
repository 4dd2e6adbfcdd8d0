// The floor on AMD GPUs: the plain loops that CUDA has too, behind the C ABI.  No CK Tile, no matrix instruction.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/gpu/conv_loops.h>
#include <tilewright/select/conv_args.h>

namespace tw::hip {

template <class Config> __global__ void __launch_bounds__(ConvLoopsShape::threads)
    conv_loops_block(const tw_conv_args x, long long elements) {
#ifdef TW_ON_GPU  // checks of the host's half are compiled without
  conv_loops<Config>(x, elements);
#endif
}

template <class Config, class Limits> struct ConvLoopsKernel : PlainKernel {
  static int check(const void *args, char *why, size_t bytes) {
    return selection::check_conv<Config, Limits>(static_cast<const tw_conv_args *>(args), true, why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    tw_conv_args x = *static_cast<const tw_conv_args *>(args);
    if (nothing_written<Config>(x)) return TW_OK;
    long long elements = ConvLoopsShape::elements<Config>(x);
    void *words[] = {&x, &elements};
    const auto kernel = reinterpret_cast<const void *>(&conv_loops_block<Config>);
    const hipError_t error = hipLaunchKernel(kernel, dim3(ConvLoopsShape::blocks<Config>(x)),
                                             dim3(ConvLoopsShape::threads), words, 0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }
};

}  // namespace tw::hip
