// A rowscale kernel on an AMD GPU behind the C ABI.
#pragma once
#include <hip/hip_runtime.h>
#include <rowscale/gpu.h>
#include <tilewright/export.h>

namespace tw {

template <class Config> __global__ void __launch_bounds__(Config::threads) rowscale_block(const RowscaleRun x) {
  rowscale<Config>(x);
}

template <class Config> struct RowscaleHip {
  static int check(const void *args, char *why, size_t bytes) { return rowscale_check(args, 1, why, bytes); }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    auto &x = *static_cast<const tw_rowscale_args *>(args);
    if (!x.rows || !x.columns) return TW_OK;
    RowscaleRun run = rowscale_run(x);
    void *parameters[] = {&run};
    auto kernel = reinterpret_cast<const void *>(&rowscale_block<Config>);
    return hipLaunchKernel(kernel, dim3(rowscale_blocks(x)), dim3(Config::threads), parameters, 0,
                           static_cast<hipStream_t>(stream)) == hipSuccess
               ? int(TW_OK)
               : int(TW_DEVICE);
  }
};

}  // namespace tw

#define ROWSCALE_EXPORT(Config, Manifest) \
  TW_EXPORT_KERNEL(Manifest, tw::RowscaleHip<Config>::check, tw::RowscaleHip<Config>::workspace, \
                   tw::RowscaleHip<Config>::launch, nullptr, nullptr, 0)
