// A rowscale kernel on an AMD GPU behind the C ABI.
#pragma once
#include <hip/hip_runtime.h>
#include <rowscale/gpu_host.h>

namespace tw {

template <class Config> __global__ void __launch_bounds__(Config::threads) rowscale_block(const RowscaleRun x) {
  rowscale<Config>(x);
}

template <class Config> struct RowscaleHip : RowscaleOnGpu {
  static int launch(const void *args, void *, void *stream) {
    auto &x = *static_cast<const tw_rowscale_args *>(args);
    if (empty(x)) return TW_OK;
    RowscaleRun run = predicted(x);
    void *parameters[] = {&run};
    auto kernel = reinterpret_cast<const void *>(&rowscale_block<Config>);
    const hipError_t error = hipLaunchKernel(kernel, dim3(blocks(x)), dim3(Config::threads), parameters, 0,
                                             static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }
};

}  // namespace tw
