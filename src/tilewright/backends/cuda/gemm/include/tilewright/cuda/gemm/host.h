// The host's half of a GEMM kernel: what it refuses, with a sentence, and how its launch is made.  What differs from
// family to family is in its own host.h and limits.h.
#pragma once
#include <tilewright/cuda/host/export.h>
#include <tilewright/cuda/gemm/loops/host.h>
#include <tilewright/cuda/gemm/multistage/host.h>
#include <tilewright/cuda/gemm/skinny/host.h>
#include <tilewright/cuda/gemm/tma_ws/host.h>

namespace tw::cuda {

template <class Config, Pipeline> struct host_of {
  using type = HostLoops<Config>;
};
template <class Config> struct host_of<Config, Pipeline::tma_ws> {
  using type = HostTmaWs<Config>;
};
template <class Config> struct host_of<Config, Pipeline::multistage> {
  using type = HostMultistage<Config>;
};
template <class Config> struct host_of<Config, Pipeline::skinny> {
  using type = HostSkinny<Config>;
};

// Only tma_ws reads what is packed beforehand.
template <class Config, bool packed> struct Packing : PlainKernel {};
template <class Config> struct Packing<Config, true>
    : HostPack<Config, HostTmaWs<Config>, HostTmaWs<Config>::pack_function> {};

// Limits: those of the kernel's family, with its schedule (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct Gemm : Packing<Config, Config::packed> {
  using Host = typename host_of<Config, Config::pipeline>::type;
  static constexpr bool packs = Config::packed;
  static constexpr int64_t clear_bytes = Host::clear_bytes;

  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_gemm_args *>(args);
    Answer common = broken_sizes<Config>(x, packs);
    if (!common.code) common = broken_fused<Config>(*x);
    if (!common.code && !empty(*x)) common = Host::broken(*x);
    if (common.code) return say(common, why, bytes);
    selection::GemmProblem p = selection::gemm_of<Config>(*x, packs);
    Host::set_aligned(p, *x);
    return selection::check<Limits>(p, why, bytes);
  }
  static int64_t workspace(const void *args, int64_t) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    return empty(x) ? 0 : Host::workspace(x);
  }
  static int run(Loaded &loaded, const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    Loaded::Place place;
    if (int error = loaded.get(place, Host::shape())) return status_of(error);
    return Host::run(x, place, workspace, stream);
  }
};

}  // namespace tw::cuda
