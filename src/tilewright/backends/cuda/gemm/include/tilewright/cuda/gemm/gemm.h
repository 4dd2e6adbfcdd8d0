// A GEMM kernel: a Config (what and how, filled in by the generated file), the device function of its
// pipeline, and the C ABI around it.
//
// The file is compiled in halves: nvcc makes the device's code (a cubin), the host's compiler the rest
// with the cubin inside (TW_CUBIN names it).  nvcc alone makes both halves at once, which is what a
// person's own build does.
#pragma once
#include <tilewright/cuda/gemm/pipelines.h>
#include <tilewright/cuda/copies/pack.h>
#include <tilewright/cuda/copies/transpose.h>
#include <tilewright/gpu/gemm_loops.h>

#ifdef __CUDACC__
// Turning bytes takes more registers than the compiler thinks good for a short kernel: left alone, it moves some to memory.
#define TW_DEVICE_TMA_WS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::tma_ws_of<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::TensorMap e, const __grid_constant__ tw::TensorMap d, \
             const __grid_constant__ tw::TmaWsArgs x) { \
    tw::gemm_tma_ws<tw::tma_ws_of<Config>, Config>(a, b, e, d, x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::Repack::threads, tw::transposed_bytes<Config> == 1 ? 4 : 0) \
      Symbol##_repack(const __grid_constant__ tw::RepackArgs x) { \
    tw::copy_operands<tw::transposed_bytes<Config>>(x, blockIdx.x, gridDim.x, threadIdx.x); \
  }
#define TW_DEVICE_MULTISTAGE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Multistage<Config>::threads, tw::Multistage<Config>::ctas_per_sm) \
      Symbol(const __grid_constant__ tw::MultistageArgs x) { \
    tw::gemm_multistage<tw::Multistage<Config>, Config>(x); \
  }
#define TW_DEVICE_PACK(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Pack::threads) \
      Symbol##_pack(const __grid_constant__ tw::PackArgs x) { \
    tw::pack<Config::B, !Config::b_rows>(x, blockIdx.x * (long long)tw::Pack::threads + threadIdx.x, \
                                         gridDim.x * (long long)tw::Pack::threads); \
  }
#define TW_DEVICE_SKINNY(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::skinny_of<Config>::threads) \
      Symbol(const __grid_constant__ tw::SkinnyArgs x) { \
    tw::gemm_skinny<tw::skinny_of<Config>, Config>(x); \
  }
#define TW_DEVICE_LOOPS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Loops::threads) Symbol(const __grid_constant__ tw::LoopsArgs x) { \
    tw::gemm_loops<Config>(x); \
  }
#else
#define TW_DEVICE_TMA_WS(Config, Symbol)
#define TW_DEVICE_PACK(Config, Symbol)
#define TW_DEVICE_MULTISTAGE(Config, Symbol)
#define TW_DEVICE_SKINNY(Config, Symbol)
#define TW_DEVICE_LOOPS(Config, Symbol)
#endif

#ifdef __CUDA_ARCH__
#define TW_EXPORT_GEMM(Config, Limits, Symbol, Manifest)
#else
#include <tilewright/cuda/gemm/host.h>
#define TW_EXPORT_GEMM(Config, Limits, Symbol, Manifest) \
  using TwGemm_##Symbol = tw::cuda::Gemm<Config, Limits>; \
  TW_EXPORT_CUDA(TwGemm_##Symbol, Symbol, Manifest, \
                 Config::pipeline == tw::Pipeline::tma_ws ? #Symbol "_repack" : nullptr, \
                 Config::packed ? #Symbol "_pack" : nullptr)
#endif
