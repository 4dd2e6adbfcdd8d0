// A GEMM kernel: a Config (what and how, filled in by the generated file), the device function of its
// pipeline, and the C ABI around it.
//
// The file is compiled in halves: nvcc makes the device's code (a cubin), the host's compiler the rest
// with the cubin inside (TW_CUBIN names it).  nvcc alone makes both halves at once, which is what a
// person's own build does.
#pragma once
#include <tilewright/export.h>
#include <tilewright/gemm_args.h>
#include <tilewright/gpu/gemm_generic.h>
#include <tilewright/gpu/multistage_shape.h>
#include <tilewright/gpu/repack.h>

#include <tilewright/cuda/pack.h>
#include <tilewright/cuda/skinny_shape.h>
#include <tilewright/cuda/tma_ws_shape.h>

namespace tw {

enum class Pipeline { tma_ws, multistage, skinny, generic };

template <class C> using tma_ws_of =
    TmaWs<typename C::A, C::turned ? C::tile_n : C::tile_m, C::turned ? C::tile_m : C::tile_n, C::stages,
          C::turned ? C::cluster_n : C::cluster_m, C::turned ? C::cluster_m : C::cluster_n, C::pingpong, C::turned,
          C::tma_store, C::turned ? C::b_rows && !C::packed : !C::a_rows,
          C::turned ? !C::a_rows : C::b_rows && !C::packed, C::deal, C::packed>;
template <class C> using skinny_of = Skinny<typename C::A, (C::few_columns ? C::tile_m : C::tile_n) / 16,
                                            (C::few_columns ? C::tile_n : C::tile_m) / 8, C::warps, C::few_columns>;

}  // namespace tw

#ifdef __CUDACC__
#define TW_DEVICE_TMA_WS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::tma_ws_of<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::TensorMap b, \
             const __grid_constant__ tw::TensorMap e, const __grid_constant__ tw::TmaWsArgs x) { \
    tw::gemm_tma_ws<tw::tma_ws_of<Config>, Config>(a, b, e, x); \
  } \
  extern "C" __global__ void __launch_bounds__(tw::Repack::threads) \
      Symbol##_repack(const __grid_constant__ tw::RepackArgs x) { \
    tw::repack(x, blockIdx.x, gridDim.x, threadIdx.x); \
  }
#define TW_DEVICE_MULTISTAGE(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Multistage<Config>::threads, 1) \
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
#define TW_DEVICE_GENERIC(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Generic::threads) \
      Symbol(const __grid_constant__ tw::GenericArgs x) { \
    tw::gemm_generic<Config>(x); \
  }
#else
#define TW_DEVICE_TMA_WS(Config, Symbol)
#define TW_DEVICE_PACK(Config, Symbol)
#define TW_DEVICE_MULTISTAGE(Config, Symbol)
#define TW_DEVICE_SKINNY(Config, Symbol)
#define TW_DEVICE_GENERIC(Config, Symbol)
#endif

#ifdef __CUDA_ARCH__
#define TW_EXPORT_GEMM(Config, Symbol, Manifest)
#else
#include <tilewright/cuda/gemm_host.h>
#ifdef __CUDACC__
#define TW_IMAGE(Symbol) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&Symbol); }
#else
#define TW_TEXT_(x) #x
#define TW_TEXT(x) TW_TEXT_(x)
// The cubin as it is, aligned as the driver likes it.
#define TW_IMAGE(Symbol) \
  asm(".pushsection .rodata\n.balign 64\ntw_cubin_" #Symbol \
      ":\n.incbin " TW_TEXT(TW_CUBIN) "\n.byte 0\n.popsection\n"); \
  extern "C" __attribute__((visibility("hidden"))) const char tw_cubin_##Symbol[]; \
  static const void *tw_image_##Symbol() { return tw_cubin_##Symbol; }
#endif
#define TW_EXPORT_GEMM(Config, Symbol, Manifest) \
  TW_IMAGE(Symbol) \
  static tw::cuda::Loaded tw_loaded_##Symbol{#Symbol, \
                                             Config::pipeline == tw::Pipeline::tma_ws ? #Symbol "_repack" : nullptr, \
                                             Config::packed ? #Symbol "_pack" : nullptr, tw_image_##Symbol}; \
  struct tw_gemm_##Symbol : tw::cuda::Gemm<Config> { \
    static int launch(const void *args, void *workspace, void *stream) { \
      return run(tw_loaded_##Symbol, args, workspace, stream); \
    } \
    static int pack(const void *args, void *to, void *stream) { \
      return run_pack(tw_loaded_##Symbol, args, to, stream); \
    } \
  }; \
  TW_EXPORT_KERNEL(Manifest, tw_gemm_##Symbol::check, tw_gemm_##Symbol::workspace, tw_gemm_##Symbol::launch, \
                   Config::packed ? tw_gemm_##Symbol::packed_bytes : nullptr, \
                   Config::packed ? tw_gemm_##Symbol::pack : nullptr, tw_gemm_##Symbol::clear_bytes)
#endif
