// The floor on AMD GPUs: the plain loops that CUDA has too, behind the C ABI.  No CK Tile, no matrix instruction; any
// element types, layouts, strides, alignment, batch, scalars and fused work, on every GPU the compiler knows.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/gemm_rules.h>
#include <tilewright/gpu/gemm_host.h>
#include <tilewright/hip/gemm/loops/limits.h>
#include <tilewright/select/gemm_args.h>

namespace tw::hip {

template <class Config> __global__ void __launch_bounds__(Loops::threads) loops(const LoopsArgs x) {
#ifdef TW_ON_GPU  // checks of the host's half are compiled without
  gemm_loops<Config>(x);
#endif
}

// Limits: those of its family, with its schedule (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct GemmLoops : PlainKernel {
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_gemm_args *>(args);
    Answer common = broken_sizes<Config>(x, false);
    if (!common.code) common = broken_fused<Config>(*x);
    if (common.code) return say(common, why, bytes);
    selection::GemmProblem p = selection::gemm_of<Config>(*x, false);
    selection::set_aligned<Config>(p, *x, false);
    return selection::check<Limits>(p, why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }

  static int launch(const void *args, void *, void *stream) {
    if (int code = check(args, nullptr, 0)) return code;
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    LoopsArgs t = loops_args(x);
    // A launch counts its threads in 32 bits; blocks take tile after tile.
    const int64_t tiles = t.tiles_m * t.tiles_n * x.batch, most = 1 << 22;
    void *words[] = {&t};
    const auto kernel = reinterpret_cast<const void *>(&loops<Config>);
    const dim3 grid(unsigned(tiles < most ? tiles : most));
    return hipLaunchKernel(kernel, grid, dim3(Loops::threads), words, 0, static_cast<hipStream_t>(stream)) == hipSuccess
               ? int(TW_OK)
               : int(TW_DEVICE);
  }
};

}  // namespace tw::hip

#define TW_EXPORT_LOOPS(Config, Limits, Manifest) TW_EXPORT_STRUCT(Manifest, tw::hip::GemmLoops<Config, Limits>)
