// A GEMM kernel behind the C ABI: what it refuses, with a sentence, and how its launches are made.
// Nothing here depends on a version of CK Tile: a Device (the glue header of the version) runs one matrix.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/abi.h>
#include <tilewright/export.h>

#if !defined(__HIP_DEVICE_COMPILE__) && defined(__ELF__) && defined(__GLIBCXX__)
// <iostream>, which CK Tile includes, names this symbol only to tie a library to the newest C++ runtime: nothing
// calls it.  Defined here, a library built against a new runtime also loads where the runtime is older.
__asm__(".weak _ZSt21ios_base_library_initv\n.hidden _ZSt21ios_base_library_initv\n.set _ZSt21ios_base_library_initv, 0");
#endif

namespace tw::hip {

// A packed B is panels of warp_tile_n columns.  A panel holds blocks of warp_tile_k, and a block is in the order
// in which the lanes of a wave load it: `groups` runs of k, each for all columns, contiguous for a lane.
template <class T, int columns, int depth>
__global__ void pack_b(const T *b, int64_t stride, T *packed, int64_t k, int64_t total) {
  constexpr int groups = columns == 32 ? 2 : 4, run = depth / groups;
  int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= total) return;
  int64_t rest = at;
  int64_t inner = rest % run;
  rest /= run;
  int64_t column = rest % columns;
  rest /= columns;
  int64_t group = rest % groups;
  rest /= groups;
  int64_t block = rest % (k / depth), panel = rest / (k / depth);
  packed[at] = b[(panel * columns + column) * stride + block * depth + group * run + inner];
}

inline void say(char *why, size_t bytes, const char *sentence) {
  size_t i = 0;
  for (; bytes && i + 1 < bytes && sentence[i]; ++i) why[i] = sentence[i];
  if (bytes) why[i] = 0;
}

template <class Config, class Device> struct Gemm {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr int64_t most_bytes = int64_t(1) << 31;  // offsets inside an operand are 32-bit

  static bool empty(const tw_gemm_args &x) { return x.m == 0 || x.n == 0 || x.batch == 0; }
  static bool apart(const void *pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes != 0; }

  // The first rule that is broken, as a code and a sentence.  The op's `supports` says the same in Python.
  static int broken(const tw_gemm_args *args, const char **why) {
    auto is = [why](int code, const char *sentence) { *why = sentence; return code; };
    if (!args) return is(TW_BAD_ARGS, "args is null");
    const tw_gemm_args &x = *args;
    if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return is(TW_BAD_ARGS, "a size is negative");
    if (x.a_stride < (Config::a_rows ? x.k : x.m)) return is(TW_BAD_ARGS, "the stride of A is shorter than its row");
    if (!Config::preshuffle && x.b_stride < (Config::b_rows ? x.n : x.k))
      return is(TW_BAD_ARGS, "the stride of B is shorter than its row");
    if (x.e_stride < x.n) return is(TW_BAD_ARGS, "the stride of E is shorter than its row");
    if (x.alpha != 1) return is(TW_LIMIT, "alpha is not 1: CK Tile kernels scale nothing");
    if (x.beta != 0) return is(TW_LIMIT, "beta is not 0: CK Tile kernels add no C (give it as a D tensor of MultiDAdd)");
    if (empty(x)) return is(TW_OK, "");
    for (int t = 0; t < Config::num_d; ++t) {
      if (!x.d[t]) return is(TW_BAD_ARGS, "a D tensor is null");
      if (x.d_col_stride[t] != 1) return is(TW_BAD_ARGS, "the column stride of a D tensor is not 1");
      if (x.d_row_stride[t] % Config::width_d || x.d_batch_stride[t] % Config::width_d || apart(x.d[t], Config::width_d * sizeof(D)))
        return is(TW_ALIGNMENT, "a D tensor or its stride is not aligned to the width of its loads");
    }
    if ((Config::a_rows ? x.k : x.m) % Config::width_a || x.a_stride % Config::width_a || x.a_batch_stride % Config::width_a)
      return is(TW_ALIGNMENT, "the contiguous extent or a stride of A is not a multiple of the width of its loads");
    if (!Config::preshuffle && ((Config::b_rows ? x.n : x.k) % Config::width_b || x.b_stride % Config::width_b || x.b_batch_stride % Config::width_b))
      return is(TW_ALIGNMENT, "the contiguous extent or a stride of B is not a multiple of the width of its loads");
    if (x.n % Config::width_c || x.e_stride % Config::width_c || x.e_batch_stride % Config::width_c)
      return is(TW_ALIGNMENT, "n or a stride of E is not a multiple of the width of its stores");
    if (apart(x.a, Config::width_a * sizeof(A)) || apart(x.b, Config::preshuffle ? 16 : Config::width_b * sizeof(B)) ||
        apart(x.e, Config::width_c * sizeof(C)))
      return is(TW_ALIGNMENT, "A, B or E is not aligned to the width of its accesses");
    if ((Config::a_rows ? x.m : x.k) * x.a_stride * int64_t(sizeof(A)) >= most_bytes ||
        (Config::preshuffle ? x.n * x.k : (Config::b_rows ? x.k : x.n) * x.b_stride) * int64_t(sizeof(B)) >= most_bytes ||
        x.m * x.e_stride * int64_t(sizeof(C)) >= most_bytes)
      return is(TW_LIMIT, "an operand spans 2 GiB or more");
    if (!Config::pad_m && x.m % Config::tile_m)
      return is(TW_DIVISIBILITY, "m is not a multiple of tile_m and the kernel has no edge code");
    if (!Config::pad_n && x.n % Config::tile_n)
      return is(TW_DIVISIBILITY, "n is not a multiple of tile_n and the kernel has no edge code");
    if (!Config::pad_k && x.k % (Config::tile_k * Config::split_k * Config::loop_step))
      return is(TW_DIVISIBILITY, Config::preshuffle ? "k is not a multiple of two tile_k" : "k is not a multiple of tile_k times split_k and the kernel has no edge code");
    if (loops(x) < Config::least_loops) return is(TW_LIMIT, "k is too short: the pipeline needs more turns of its k loop");
    if (Config::split_k > 1 && x.k % (Config::tile_k * Config::split_k))
      return is(TW_DIVISIBILITY, "k does not split into equal parts of whole tiles");
    if (Config::split_k > 1 && Device::unguarded_sums && x.m % Config::tile_m)
      return is(TW_DIVISIBILITY, "m is not a multiple of tile_m, and sums of this type are added without a bounds check");
    if (Config::preshuffle && x.n % Config::warp_tile_n)
      return is(TW_DIVISIBILITY, "n is not a multiple of warp_tile_n, the columns of a packed panel");
    return is(TW_OK, "");
  }

  static int64_t loops(const tw_gemm_args &x) {
    int64_t step = int64_t(Config::tile_k) * Config::split_k;
    return (x.k + step - 1) / step;
  }
  static int check(const void *args, char *why, size_t bytes) {
    const char *sentence = "";
    int code = broken(static_cast<const tw_gemm_args *>(args), &sentence);
    say(why, bytes, sentence);
    return code;
  }
  static int64_t workspace(const void *, int64_t) { return 0; }

  // One matrix of the batch after the other, all on the stream.  What changes from call to call, pointers and
  // scalars, is checked here too: a wide load from a misaligned address would give wrong numbers, not an error.
  static int launch(const void *args, void *, void *stream) {
    const char *why = "";
    if (int code = broken(static_cast<const tw_gemm_args *>(args), &why)) return code;
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    auto on = static_cast<hipStream_t>(stream);
    for (int64_t z = 0; z < x.batch; ++z) {
      tw_gemm_args one = x;
      one.a = static_cast<const A *>(x.a) + z * x.a_batch_stride;
      one.b = static_cast<const B *>(x.b) + (Config::preshuffle ? (x.b_batch_stride ? z : 0) * x.n * x.k : z * x.b_batch_stride);
      one.e = static_cast<C *>(x.e) + z * x.e_batch_stride;
      for (int t = 0; t < Config::num_d; ++t) one.d[t] = static_cast<const D *>(x.d[t]) + z * x.d_batch_stride[t];
      // The parts of a split k add to E, so E starts at zero.
      if (Config::split_k > 1 && hipMemset2DAsync(one.e, x.e_stride * sizeof(C), 0, x.n * sizeof(C), x.m, on) != hipSuccess)
        return TW_DEVICE;
      int status = Device::run(one, int(loops(x)), on);
      if (status != TW_OK) return status;
    }
    return TW_OK;
  }

  static int64_t packed_bytes(const void *args) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    return (x.b_batch_stride && x.batch > 1 ? x.batch : 1) * x.n * x.k * int64_t(sizeof(B));
  }
  static int pack(const void *args, void *packed, void *stream) {
    if constexpr (Config::preshuffle) {
      auto &x = *static_cast<const tw_gemm_args *>(args);
      int64_t total = x.n * x.k, batch = x.b_batch_stride ? x.batch : 1;
      if (x.n % Config::warp_tile_n || x.k % Config::warp_tile_k) return TW_DIVISIBILITY;
      for (int64_t z = 0; z < batch && total; ++z)
        pack_b<B, Config::warp_tile_n, Config::warp_tile_k>
            <<<dim3((total + 255) / 256), dim3(256), 0, static_cast<hipStream_t>(stream)>>>(
                static_cast<const B *>(x.b) + z * x.b_batch_stride, x.b_stride, static_cast<B *>(packed) + z * total, x.k, total);
      return hipGetLastError() == hipSuccess ? TW_OK : TW_DEVICE;
    }
    return TW_BAD_ARGS;
  }
};

}  // namespace tw::hip
