// A wave for each element of E: its lanes run along k, where A's rows and B's columns are contiguous.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/gemm_rules.h>
#include <tilewright/gpu/gemm_host.h>

namespace tw::hip {

template <class Config> __global__ void __launch_bounds__(Config::lanes *Config::waves) wave_dot(const LoopsArgs x) {
#ifdef TW_ON_GPU  // the host's half may be compiled by a compiler without HIP
  const int lane = threadIdx.x % Config::lanes;
  const Finish<Config> finish(x.finish);
  long long element = blockIdx.x * (long long)Config::waves + threadIdx.x / Config::lanes;
  for (; element < x.m * x.n; element += gridDim.x * (long long)Config::waves) {
    const long long row = element / x.n, column = element % x.n;
    auto *a = static_cast<const typename Config::A *>(x.a) + row * x.a_stride;
    auto *b = static_cast<const typename Config::B *>(x.b) + column * x.b_stride;
    float sum = 0;
    for (long long k = lane; k < x.k; k += Config::lanes) sum += to_float(a[k]) * to_float(b[k]);
#pragma unroll
    for (int step = Config::lanes / 2; step; step /= 2) sum += __shfl_xor(sum, step);
    if (lane == 0) static_cast<typename Config::C *>(x.e)[row * x.e_stride + column] = finish(sum, 0, row, column);
  }
#endif
}

template <class Config> struct WaveDot : PlainKernel {
  static Answer broken(const tw_gemm_args *args) {
    Answer common = broken_sizes<Config>(args, false);
    if (!common.code) common = broken_fused<Config>(*args);
    if (!common.code && args->batch != 1) return {TW_LIMIT, "the kernel multiplies one matrix, not a batch"};
    return common;
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_gemm_args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    if (int code = check(args, nullptr, 0)) return code;
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (!x.m || !x.n) return TW_OK;
    LoopsArgs t = loops_args(x);
    void *words[] = {&t};
    // A launch counts its threads in 32 bits: more elements than that are taken in rounds.
    const int64_t groups = (x.m * x.n + Config::waves - 1) / Config::waves, most = 1 << 22;
    const auto kernel = reinterpret_cast<const void *>(&wave_dot<Config>);
    const dim3 grid{unsigned(groups < most ? groups : most)}, group{unsigned(Config::lanes * Config::waves)};
    const hipError_t error = hipLaunchKernel(kernel, grid, group, words, 0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? int(TW_OK) : int(TW_DEVICE);
  }
};

}  // namespace tw::hip
