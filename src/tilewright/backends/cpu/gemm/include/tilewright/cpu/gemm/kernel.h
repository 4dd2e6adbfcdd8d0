// A GEMM kernel: a Config (what and how, filled in by the generated file) bound to the Work of its family and exported
// through the C ABI.
#pragma once
#include <tilewright/export.h>
#include <tilewright/gemm_rules.h>
#include <tilewright/select/gemm_args.h>

namespace tw {

// The two optional entries of a kernel: only those whose B was packed beforehand have them.
template <class Config, class Work, bool Has> struct Packing : PlainKernel {};
template <class Config, class Work> struct Packing<Config, Work, true> : PlainKernel {
  static int64_t packed_bytes(const void *args) { return Work::packed_bytes(*static_cast<const tw_gemm_args *>(args)); }
  static int pack(const void *args, void *packed, void *stream) {
    return Work::pack(*static_cast<const tw_gemm_args *>(args), packed, stream);
  }
};

// Limits: the namespace of the family's limits.h, as a type (TW_LIMITS of select/gemm_args.h).
template <class Config, class Work, class Limits> struct Gemm : Packing<Config, Work, Config::b_packed> {
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_gemm_args *>(args);
    Answer common = broken_sizes<Config>(x, Config::b_packed);
    if (!common.code) common = broken_fused<Config>(*x);
    if (common.code) return say(common, why, bytes);
    return selection::check<Limits>(selection::gemm_of<Config>(*x, Config::b_packed), why, bytes);
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
