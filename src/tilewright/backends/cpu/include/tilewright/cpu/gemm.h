// A GEMM kernel: a Config (what and how, filled in by the generated file) bound to a pipeline and
// exported through the C ABI.
#pragma once
#include <tilewright/abi.h>

#include <tilewright/cpu/gemm_generic.h>
#include <tilewright/cpu/team.h>
#include <tilewright/cpu/types.h>

namespace tw {

enum class Pipeline { packed, direct, gemv, preshuffle, generic };

// A sentence into a C buffer, cut to fit; the C library's printf is not needed for it.
TW_INLINE void say(char *why, size_t bytes, const char *sentence) {
  size_t i = 0;
  for (; bytes && i + 1 < bytes && sentence[i]; ++i) why[i] = sentence[i];
  if (bytes) why[i] = 0;
}

template <class Config> struct Gemm {
  using Work = GemmGeneric<Config>;

  static int check(const void *raw, char *why, size_t bytes) {
    auto *args = static_cast<const tw_gemm_args *>(raw);
    if (!args) { say(why, bytes, "args is null"); return TW_BAD_ARGS; }
    const tw_gemm_args &x = *args;
    if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) { say(why, bytes, "a size is negative"); return TW_BAD_ARGS; }
    if (x.a_stride < (Config::a_rows ? x.k : x.m)) { say(why, bytes, "the stride of A is shorter than its row"); return TW_BAD_ARGS; }
    if (Config::pipeline != Pipeline::preshuffle && x.b_stride < (Config::b_rows ? x.n : x.k)) { say(why, bytes, "the stride of B is shorter than its row"); return TW_BAD_ARGS; }
    if (x.e_stride < x.n) { say(why, bytes, "the stride of E is shorter than its row"); return TW_BAD_ARGS; }
    if (x.beta != 0 && !x.c) { say(why, bytes, "beta is not 0 but C is null"); return TW_BAD_ARGS; }
    if (!Config::pad_m && x.m % Config::warp_tile_m) { say(why, bytes, "m is not a multiple of warp_tile_m and the kernel has no edge code"); return TW_DIVISIBILITY; }
    if (!Config::pad_n && x.n % Config::warp_tile_n) { say(why, bytes, "n is not a multiple of warp_tile_n and the kernel has no edge code"); return TW_DIVISIBILITY; }
    if (!Config::pad_k && x.k % Config::warp_tile_k) { say(why, bytes, "k is not a multiple of warp_tile_k and the kernel has no edge code"); return TW_DIVISIBILITY; }
    say(why, bytes, "");
    return TW_OK;
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *raw, void *workspace, void *stream) {
    auto *args = static_cast<const tw_gemm_args *>(raw);
    if (args->m == 0 || args->n == 0 || args->batch == 0) return TW_OK;
    return Work::launch(*args, workspace, stream);
  }
};

}  // namespace tw

#define TW_EXPORT_GEMM(Config, Manifest)                                                       \
  extern "C" __attribute__((visibility("default"))) int64_t tw_abi_version(void) {             \
    return TW_ABI_VERSION;                                                                     \
  }                                                                                            \
  extern "C" __attribute__((visibility("default"))) const tw_kernel *tw_kernels(int64_t *n) {  \
    static const tw_kernel table[] = {{Manifest, tw::Gemm<Config>::check,                      \
                                       tw::Gemm<Config>::workspace, tw::Gemm<Config>::launch,  \
                                       nullptr, nullptr}};                                     \
    *n = 1;                                                                                    \
    return table;                                                                              \
  }
