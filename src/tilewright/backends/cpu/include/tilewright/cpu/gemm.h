// A GEMM kernel: a Config (what and how, filled in by the generated file) bound to a pipeline and
// exported through the C ABI.
#pragma once
#include <tilewright/export.h>
#include <tilewright/gemm_args.h>

#include <tilewright/cpu/gemm_direct.h>
#include <tilewright/cpu/gemm_generic.h>
#include <tilewright/cpu/gemm_packed.h>
#include <tilewright/cpu/gemm_stream.h>

namespace tw {

enum class Pipeline { packed, direct, gemv, stream, preshuffle, generic };

template <class Config, Pipeline> struct work_of {
  using type = GemmGeneric<Config>;
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

// A sentence into a C buffer, cut to fit; the C library's printf is not needed for it.
TW_INLINE void say(char *why, size_t bytes, const char *sentence) {
  size_t i = 0;
  for (; bytes && i + 1 < bytes && sentence[i]; ++i) why[i] = sentence[i];
  if (bytes) why[i] = 0;
}

template <class Config> struct Gemm {
  using Work = typename work_of<Config, Config::pipeline>::type;
  static constexpr bool prepacked = Config::pipeline == Pipeline::preshuffle;

  // The first rule that is broken, as a code and a sentence.
  static int broken(const tw_gemm_args *args, const char **why) {
    auto is = [why](int code, const char *sentence) {
      *why = sentence;
      return code;
    };
    if (!args) return is(TW_BAD_ARGS, "args is null");
    const tw_gemm_args &x = *args;
    if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return is(TW_BAD_ARGS, "a size is negative");
    if (x.a_stride < (Config::a_rows ? x.k : x.m)) return is(TW_BAD_ARGS, "the stride of A is shorter than its row");
    if (!prepacked && x.b_stride < (Config::b_rows ? x.n : x.k))
      return is(TW_BAD_ARGS, "the stride of B is shorter than its row");
    if (x.e_stride < x.n) return is(TW_BAD_ARGS, "the stride of E is shorter than its row");
    if (x.beta != 0 && !x.c) return is(TW_BAD_ARGS, "beta is not 0 but C is null");
    for (int t = 0; t < Config::num_d; ++t) {
      if (x.m && x.n && !x.d[t]) return is(TW_BAD_ARGS, "a D tensor is null");
      if (x.d_col_stride[t] != 0 && x.d_col_stride[t] != 1)
        return is(TW_BAD_ARGS, "the column stride of a D tensor is neither 0 nor 1");
    }
    if (!Config::pad_m && x.m % Config::warp_tile_m)
      return is(TW_DIVISIBILITY, "m is not a multiple of warp_tile_m and the kernel has no edge code");
    if (!Config::pad_n && x.n % Config::warp_tile_n)
      return is(TW_DIVISIBILITY, "n is not a multiple of warp_tile_n and the kernel has no edge code");
    if (!Config::pad_k && x.k % Config::warp_tile_k)
      return is(TW_DIVISIBILITY, "k is not a multiple of warp_tile_k and the kernel has no edge code");
    if ((Config::pipeline == Pipeline::gemv || Config::pipeline == Pipeline::stream) && x.m > Config::tile_m &&
        x.n > Config::tile_m)
      return is(TW_LIMIT, "m and n are both over tile_m, the vectors this kernel holds");
    return is(TW_OK, "");
  }
  static int check(const void *args, char *why, size_t bytes) {
    const char *sentence = "";
    int code = broken(static_cast<const tw_gemm_args *>(args), &sentence);
    say(why, bytes, sentence);
    return code;
  }
  static int64_t workspace(const void *args, int64_t threads) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (x.m == 0 || x.n == 0 || x.batch == 0) return 0;  // nothing to do: pipelines need not think of it
    return Work::workspace(x, threads < 1 ? 1 : threads);
  }
  static int launch(const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (x.m == 0 || x.n == 0 || x.batch == 0) return TW_OK;
    return Work::launch(x, workspace, stream);
  }
};

// The two optional entries of a kernel: only preshuffle kernels have them.
template <class Config, bool Has> struct Packing {
  static constexpr int64_t (*bytes)(const void *) = nullptr;
  static constexpr int (*pack)(const void *, void *, void *) = nullptr;
};
template <class Config> struct Packing<Config, true> {
  using Work = typename Gemm<Config>::Work;
  static int64_t bytes(const void *args) { return Work::packed_bytes(*static_cast<const tw_gemm_args *>(args)); }
  static int pack(const void *args, void *packed, void *stream) {
    return Work::pack(*static_cast<const tw_gemm_args *>(args), packed, stream);
  }
};

}  // namespace tw

#define TW_EXPORT_GEMM(Config, Manifest) \
  TW_EXPORT_KERNEL(Manifest, tw::Gemm<Config>::check, tw::Gemm<Config>::workspace, tw::Gemm<Config>::launch, \
                   (tw::Packing<Config, tw::Gemm<Config>::prepacked>::bytes), \
                   (tw::Packing<Config, tw::Gemm<Config>::prepacked>::pack), 0)
