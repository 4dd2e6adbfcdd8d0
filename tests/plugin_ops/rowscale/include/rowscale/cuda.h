// A rowscale kernel on an NVIDIA GPU.  The file is compiled in halves: the device's code by nvcc or NVRTC, the host's,
// with that code inside, by the host's compiler.
#pragma once
#include <rowscale/gpu.h>

#ifdef __CUDACC__
#define ROWSCALE_DEVICE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(Config::threads) Symbol(const __grid_constant__ tw::RowscaleRun x) { \
    tw::rowscale<Config>(x); \
  }
#else
#define ROWSCALE_DEVICE(Config, Symbol)
#endif

#ifdef __CUDA_ARCH__
#define ROWSCALE_EXPORT(Config, Symbol, Manifest)
#else
#include <rowscale/gpu_host.h>
#include <tilewright/cuda/host/export.h>

namespace tw {

template <class Config> struct RowscaleCuda : RowscaleOnGpu {
  static constexpr bool packs = false;
  static int run(cuda::Loaded &loaded, const void *args, void *, void *stream) {
    auto &x = *static_cast<const tw_rowscale_args *>(args);
    if (empty(x)) return TW_OK;
    const cuda::LaunchShape shape{unsigned(Config::threads)};
    cuda::Loaded::Place place{};
    if (int error = loaded.get(place, shape)) return cuda::status_of(error);
    RowscaleRun run = predicted(x);
    return cuda::start(place.functions[0], {blocks(x)}, shape, stream, run);
  }
};

}  // namespace tw

#define ROWSCALE_EXPORT(Config, Symbol, Manifest) TW_EXPORT_CUDA(tw::RowscaleCuda<Config>, Symbol, Manifest, nullptr)
#endif
