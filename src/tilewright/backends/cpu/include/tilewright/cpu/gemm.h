// A GEMM kernel: a Config (what and how, filled in by the generated file) bound to a pipeline and
// exported through the C ABI.
#pragma once
#include <tilewright/export.h>
#include <tilewright/gemm_rules.h>

#include <tilewright/cpu/gemm_direct.h>
#include <tilewright/cpu/gemm_loops.h>
#include <tilewright/cpu/gemm_packed.h>
#include <tilewright/cpu/gemm_stream.h>

namespace tw {

enum class Pipeline { packed, direct, gemv, stream, preshuffle, loops };

template <class Config, Pipeline> struct work_of {
  using type = GemmLoops<Config>;
};
template <class Config> struct work_of<Config, Pipeline::packed> {
  using type = GemmPacked<Config, false>;
};
template <class Config> struct work_of<Config, Pipeline::preshuffle> {
  using type = GemmPacked<Config, true>;
};
template <class Config> struct work_of<Config, Pipeline::direct> {
  using type = GemmDirect<Config>;
};
template <class Config> struct work_of<Config, Pipeline::gemv> {
  using type = GemmStream<Config>;
};
template <class Config> struct work_of<Config, Pipeline::stream> {
  using type = GemmStream<Config>;
};

// The two optional entries of a kernel: only preshuffle kernels have them.
template <class Config, bool Has> struct Packing : PlainKernel {};
template <class Config> struct Packing<Config, true> : PlainKernel {
  using Work = typename work_of<Config, Config::pipeline>::type;
  static int64_t packed_bytes(const void *args) { return Work::packed_bytes(*static_cast<const tw_gemm_args *>(args)); }
  static int pack(const void *args, void *packed, void *stream) {
    return Work::pack(*static_cast<const tw_gemm_args *>(args), packed, stream);
  }
};

template <class Config> struct Gemm : Packing<Config, Config::pipeline == Pipeline::preshuffle> {
  using Work = typename work_of<Config, Config::pipeline>::type;

  // The first rule that is broken.
  static Answer broken(const tw_gemm_args *args) {
    Answer common = broken_sizes<Config>(args, Config::pipeline == Pipeline::preshuffle);
    if (!common.code) common = broken_fused<Config>(*args);
    if (common.code) return common;
    const tw_gemm_args &x = *args;
    if (!Config::pad_m && x.m % Config::warp_tile_m)
      return {TW_DIVISIBILITY, "m is not a multiple of warp_tile_m and the kernel has no edge code"};
    if (!Config::pad_n && x.n % Config::warp_tile_n)
      return {TW_DIVISIBILITY, "n is not a multiple of warp_tile_n and the kernel has no edge code"};
    if (!Config::pad_k && x.k % Config::warp_tile_k)
      return {TW_DIVISIBILITY, "k is not a multiple of warp_tile_k and the kernel has no edge code"};
    if ((Config::pipeline == Pipeline::gemv || Config::pipeline == Pipeline::stream) && x.m > Config::tile_m &&
        x.n > Config::tile_m)
      return {TW_LIMIT, "m and n are both over tile_m, the vectors this kernel holds"};
    return {};
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_gemm_args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *args, int64_t threads) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    return empty(x) ? 0 : Work::workspace(x, threads < 1 ? 1 : threads);
  }
  static int launch(const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    return empty(x) ? int(TW_OK) : Work::launch(x, workspace, stream);
  }
};

}  // namespace tw

#define TW_EXPORT_GEMM(Config, Manifest) TW_EXPORT_STRUCT(Manifest, tw::Gemm<Config>)
