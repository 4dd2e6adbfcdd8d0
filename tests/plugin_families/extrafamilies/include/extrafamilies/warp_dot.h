// A warp for each element of E: its lanes run along k, where A's rows and B's columns are contiguous.
#pragma once
#include <tilewright/gpu/gemm_loops.h>

#ifdef __CUDACC__
namespace tw {

template <class Config> TW_GPU void warp_dot(const LoopsArgs &x) {
  const long long element = blockIdx.x * (long long)Config::warps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (element >= x.m * x.n) return;
  const long long row = element / x.n, column = element % x.n;
  auto *a = static_cast<const typename Config::A *>(x.a) + row * x.a_stride;
  auto *b = static_cast<const typename Config::B *>(x.b) + column * x.b_stride;
  float sum = 0;
  for (long long k = lane; k < x.k; k += 32) sum += to_float(a[k]) * to_float(b[k]);
#pragma unroll
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const Finish<Config> finish(x.finish);
  if (lane == 0) static_cast<typename Config::C *>(x.e)[row * x.e_stride + column] = finish(sum, 0, row, column);
}

}  // namespace tw
#define WARP_DOT_DEVICE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(32 * Config::warps) Symbol(const __grid_constant__ tw::LoopsArgs x) { \
    tw::warp_dot<Config>(x); \
  }
#else
#define WARP_DOT_DEVICE(Config, Symbol)
#endif

#ifdef __CUDA_ARCH__
#define WARP_DOT_EXPORT(Config, Symbol, Manifest)
#else
#include <tilewright/cuda/host/export.h>
#include <tilewright/cuda/gemm/host_common.h>

namespace tw::cuda {

template <class Config> struct WarpDot : PlainKernel {
  static constexpr bool packs = false;
  static Answer broken(const tw_gemm_args *args) {
    Answer common = broken_sizes<Config>(args, packs);
    if (!common.code) common = broken_fused<Config>(*args);
    if (!common.code && args->batch != 1) return {TW_LIMIT, "the kernel multiplies one matrix, not a batch"};
    return common;
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_gemm_args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int run(Loaded &loaded, const void *args, void *, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (!x.m || !x.n) return TW_OK;
    const LaunchShape shape{unsigned(32 * Config::warps)};
    Loaded::Place place{};
    if (int error = loaded.get(place, shape)) return status_of(error);
    LoopsArgs t = loops_args(x);
    const int64_t blocks = (x.m * x.n + Config::warps - 1) / Config::warps;
    return start(place.functions[0], {unsigned(blocks)}, shape, stream, t);
  }
};

}  // namespace tw::cuda
#define WARP_DOT_EXPORT(Config, Symbol, Manifest) TW_EXPORT_CUDA(tw::cuda::WarpDot<Config>, Symbol, Manifest, nullptr)
#endif
