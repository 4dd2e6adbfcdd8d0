// A GEMM kernel behind the C ABI: what it refuses, with a sentence, and how its launches are made.
// Nothing here depends on CK Tile: a Device (the glue header of the version, in the device's pass only) says what a
// block does.  So the passes of the compiler see different texts, and must agree on two things: the names of
// kernels, which follow from the name of the Config, and their argument, a Launch.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/gemm_rules.h>
#include <tilewright/hip/gemm/rules.h>
#include <tilewright/hip/packed.h>
#include <tilewright/select/gemm_args.h>
#include <tilewright/gpu/types.h>

#include <type_traits>
#include <utility>

// The C++ type of an element to the device, its size to the host.
#if defined(__HIP_DEVICE_COMPILE__)
#define TW_ELEMENT(Type, bytes) Type
#else
#define TW_ELEMENT(Type, bytes) tw::hip::Element<bytes>
#endif

namespace tw::hip {

template <int bytes> struct Element {
  char at[bytes];
};

// What a launch passes to its blocks.  Strides of what is stored or read on the way out are 64-bit; A and B are read with
// 32-bit offsets.  Batch strides are elements from matrix to matrix.
struct Launch {
  const void *a, *b, *c, *d[TW_MAX_D];
  void *e;
  void *accum;  // where k is split: the splits of each matrix, m x sums_stride each
  int m, n, k, batch, a_stride, b_stride;
  int parts, finish_across, wide;
  int64_t a_batch, b_batch, c_batch, d_batch[TW_MAX_D], e_batch;
  int64_t c_stride, d_stride[TW_MAX_D], e_stride, accum_stride;
  int64_t d_column_stride[TW_MAX_D];
  double alpha, beta;
};

// Bits of `wide`: what is aligned to the width of its accesses.
constexpr int wide_e = 1, wide_c = 2, wide_d = 4;

// Elements of E, C and D tensors that move together on the way out.
template <class Config> constexpr int out_width =
    Config::split_k > 1 ? 16 / int(sizeof(typename Config::C)) : Config::width_c;
constexpr int finish_threads = 256;

// A pipeline may need other code for the last iterations of its k loop, chosen by the number of iterations: each such tail is a
// kernel of its own, a variant.  `three`: many iterations, one, two.  `pairs` and `stages`: what is left over of a round of
// stages, after the hot loop (the first half of the variants) or without it.
enum class Tails { one, three, pairs, stages };

template <class Config> constexpr int variants = Config::tails == Tails::one     ? 1
                                                 : Config::tails == Tails::three ? 3
                                                                                 : 2 * Config::stages;

template <class Config> constexpr int variant_of(int turns) {
  if (Config::tails == Tails::one) return 0;
  if (Config::tails == Tails::three) return turns > 2 ? 0 : turns;
  return turns % Config::stages + (turns <= Config::stages + (Config::tails == Tails::pairs) ? Config::stages : 0);
}

template <class Config> struct Device;

template <class Config, int variant> __global__ void __launch_bounds__(Config::threads, 1) block(const Launch x) {
#if defined(__HIP_DEVICE_COMPILE__)
  Device<Config>::template run<variant>(x);
#endif
}

// Partial sums of a split k become E.
template <class Config> __global__ void __launch_bounds__(finish_threads) finish(const Launch x) {
#if defined(__HIP_DEVICE_COMPILE__)
  Device<Config>::finish(x);
#endif
}

template <class T, int columns, int depth>
__global__ void pack_b(const T *b, int64_t stride, T *packed, int64_t k, int64_t total) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= total) return;
  const PackedPlace from = packed_place<columns, depth>(at, k);
  packed[at] = b[from.column * stride + from.k];
}

// Columns of B, one after the other.
template <class T, bool rows>
__global__ void pack_columns(const T *b, int64_t stride, T *packed, int64_t k, int64_t total) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= total) return;
  const int64_t column = at / k, down = at % k;
  packed[at] = rows ? b[down * stride + column] : b[column * stride + down];
}

// The order of a packed B: panels of CK Tile's warp tiles, or columns, which our own kernels read.
template <class Config, class = void> struct PackedOrder {
  static bool whole(int64_t n, int64_t k) { return n % Config::warp_tile_n == 0 && k % Config::warp_tile_k == 0; }
  template <class T> static auto kernel() { return &pack_b<T, Config::warp_tile_n, Config::warp_tile_k>; }
};
template <class Config> struct PackedOrder<Config, std::enable_if_t<Config::packed_columns>> {
  static bool whole(int64_t, int64_t) { return true; }
  template <class T> static auto kernel() { return &pack_columns<T, Config::packs_rows>; }
};

// The two optional entries of a kernel: only preshuffle kernels have them.
template <class Config, bool Has> struct Packing : PlainKernel {};
template <class Config> struct Packing<Config, true> : PlainKernel {
  using B = typename Config::B;
  static int64_t packed_bytes(const void *args) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    return (x.b_batch_stride && x.batch > 1 ? x.batch : 1) * x.n * x.k * int64_t(sizeof(B));
  }
  static int pack(const void *args, void *packed, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    int64_t total = x.n * x.k, batch = x.b_batch_stride ? x.batch : 1;
    if (!PackedOrder<Config>::whole(x.n, x.k)) return TW_DIVISIBILITY;
    // Copied, not computed with: any type of the size does.
    using Word = std::conditional_t<sizeof(B) == 1, uint8_t, std::conditional_t<sizeof(B) == 2, uint16_t, uint32_t>>;
    const auto kernel = PackedOrder<Config>::template kernel<Word>();
    for (int64_t z = 0; z < batch && total; ++z)
      kernel<<<dim3((total + 255) / 256), dim3(256), 0, static_cast<hipStream_t>(stream)>>>(
          static_cast<const Word *>(x.b) + z * x.b_batch_stride, x.b_stride, static_cast<Word *>(packed) + z * total,
          x.k, total);
    return hipGetLastError() == hipSuccess ? TW_OK : TW_DEVICE;
  }
};

// Limits: those of its family, with its schedule (TW_LIMITS of select/check.h).
template <class Config, class Limits> struct Gemm : Packing<Config, Config::preshuffle> {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr bool splits = Config::split_k > 1;
  static constexpr int width = out_width<Config>;
  static constexpr int64_t most_threads = selection::hip_gemm::kMostThreads;
  static constexpr int64_t most_slices = int64_t(256) << 20;  // bytes of workspace, where one matrix needs no more
  static constexpr int64_t most_blocks_y = (int64_t(1) << 16) - 1;

  static bool apart(const void *pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes != 0; }
  static int64_t up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

  // 0, or the code of what is broken: what no problem says, then the family's limits.
  static int check(const void *args, char *why, size_t bytes) {
    const auto *x = static_cast<const tw_gemm_args *>(args);
    Answer common = broken_sizes<Config>(x, Config::preshuffle);
    if (!common.code) common = broken_fused<Config>(*x);
    if (!common.code && !empty(*x) && Config::preshuffle && apart(x->b, 16))
      common = {TW_ALIGNMENT, "the packed B does not start at a multiple of 16 bytes"};
    if (common.code) return say(common, why, bytes);
    selection::GemmProblem p = selection::gemm_of<Config>(*x, Config::preshuffle);
    selection::set_aligned<Config>(p, *x, Config::preshuffle);
    return selection::check<Limits>(p, why, bytes);
  }

  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  static int64_t loops(const tw_gemm_args &x) { return ceil_div(x.k, int64_t(Config::tile_k) * Config::split_k); }
  // Splits of k that have something to do; each has as many iterations of the loop.
  static int64_t parts(const tw_gemm_args &x) { return splits ? ceil_div(x.k, loops(x) * Config::tile_k) : 1; }
  static int64_t tiles(const tw_gemm_args &x) { return ceil_div(x.m, Config::tile_m) * ceil_div(x.n, Config::tile_n); }

  // Bytes of all splits of one matrix; rows are whole accesses of any width.
  static int64_t slices(const tw_gemm_args &x) { return parts(x) * x.m * up(x.n, 16) * 4; }
  // Matrices of the batch that one launch computes.
  static int64_t at_once(const tw_gemm_args &x) {
    int64_t most = x.batch < most_blocks_y ? x.batch : most_blocks_y;
    const int64_t room = (most_threads - 1) / (tiles(x) * Config::split_k * Config::threads);
    if (Config::persistent && most > room) most = room;  // a persistent block counts all tiles of all matrices
    if (splits && most * slices(x) > most_slices) most = most_slices / slices(x);
    return most < 1 ? 1 : most;
  }
  static int64_t workspace(const void *args, int64_t) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    return splits && !empty(x) && x.k ? at_once(x) * slices(x) : 0;
  }

  // The kernel of a variant, as the runtime wants it named.
  template <int... every> static const void *chosen(int variant, std::integer_sequence<int, every...>) {
    static const void *const all[] = {reinterpret_cast<const void *>(&block<Config, every>)...};
    return all[variant];
  }

  static int start(const void *kernel, dim3 grid, int threads, Launch &one, hipStream_t stream) {
    void *args[] = {&one};
    return hipLaunchKernel(kernel, grid, dim3(threads), args, 0, stream) == hipSuccess ? int(TW_OK) : int(TW_DEVICE);
  }

  // Some matrices of the batch, with accumulators where k is split.
  static int run(Launch &one, int64_t tiles, int variant, hipStream_t stream) {
    const void *kernel = chosen(variant, std::make_integer_sequence<int, variants<Config>>());
    dim3 grid(tiles, one.batch, one.parts);
    if constexpr (Config::persistent) {
      // As many blocks as run at once; the kernel traverses the tiles, and finds its split of k by itself.
      static const int blocks = [kernel] {
        int device = 0, units = 0, each = 0;
        if (hipGetDevice(&device) != hipSuccess ||
            hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device) != hipSuccess ||
            hipOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, Config::threads, 0) != hipSuccess)
          return 0;
        return units * (each < 1 ? 1 : each);
      }();
      const int64_t work = tiles * one.parts * one.batch;
      grid = dim3(blocks > 0 && blocks < work ? blocks : work);
    }
    if (int status = start(kernel, grid, Config::threads, one, stream); status != TW_OK || !splits) return status;
    if constexpr (splits) {
      const int64_t pieces = ceil_div(one.n, width);
      one.finish_across = 1;
      while (one.finish_across < finish_threads && one.finish_across < pieces) one.finish_across *= 2;
      const int64_t rows = ceil_div(one.m, finish_threads / one.finish_across);
      const dim3 all(ceil_div(pieces, one.finish_across), rows < most_blocks_y ? rows : most_blocks_y, one.batch);
      return start(reinterpret_cast<const void *>(&finish<Config>), all, finish_threads, one, stream);
    }
    return TW_OK;
  }

  // What of E, C and the D tensors can be moved in whole accesses.
  static int wide_bits(const tw_gemm_args &x) {
    auto whole = [&x](const void *at, int64_t stride, int64_t batch_stride, int64_t size) {
      return stride % width == 0 && (x.batch == 1 || batch_stride % width == 0) && !apart(at, width * size);
    };
    int bits = whole(x.e, x.e_stride, x.e_batch_stride, sizeof(C)) ? wide_e : 0;
    if (x.beta != 0 && whole(x.c, x.c_stride, x.c_batch_stride, sizeof(C))) bits |= wide_c;
    for (int t = 0; t < Config::num_d; ++t)
      if (x.d_col_stride[t] == 1 && whole(x.d[t], x.d_row_stride[t], x.d_batch_stride[t], sizeof(D)))
        bits |= wide_d << t;
    return bits;
  }

  static Launch launch_of(const tw_gemm_args &x, void *workspace) {
    Launch one{};
    one.a = x.a, one.b = x.b, one.c = x.c, one.e = x.e, one.accum = workspace;
    one.m = int(x.m), one.n = int(x.n), one.k = int(x.k), one.parts = int(parts(x));
    one.a_stride = int(x.a_stride), one.b_stride = int(Config::preshuffle ? x.k : x.b_stride);
    one.a_batch = x.a_batch_stride, one.c_batch = x.c_batch_stride, one.e_batch = x.e_batch_stride;
    one.b_batch = Config::preshuffle && x.b_batch_stride ? x.n * x.k : x.b_batch_stride;
    one.c_stride = x.c_stride, one.e_stride = x.e_stride, one.accum_stride = up(x.n, 16);
    for (int t = 0; t < Config::num_d; ++t) {
      one.d[t] = x.d[t], one.d_batch[t] = x.d_batch_stride[t];
      one.d_stride[t] = x.d_row_stride[t], one.d_column_stride[t] = x.d_col_stride[t];
    }
    one.alpha = x.alpha, one.beta = x.beta, one.wide = wide_bits(x);
    return one;
  }

  template <class T> static const void *moved(const void *from, int64_t elements) {
    return from ? static_cast<const T *>(from) + elements : nullptr;
  }

  // All on the stream.  What changes from call to call, pointers and scalars, is checked here too: a wide load from a
  // misaligned address would give wrong numbers, not an error.
  static int launch(const void *args, void *workspace, void *stream) {
    if (int code = check(args, nullptr, 0)) return code;
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    if (splits && !workspace) return TW_BAD_ARGS;
    const Launch all = launch_of(x, workspace);
    const int64_t step = at_once(x);
    for (int64_t z = 0; z < x.batch; z += step) {
      Launch one = all;
      one.batch = int(x.batch - z < step ? x.batch - z : step);
      one.a = moved<A>(all.a, z * all.a_batch), one.b = moved<B>(all.b, z * all.b_batch);
      one.c = moved<C>(all.c, z * all.c_batch), one.e = static_cast<C *>(all.e) + z * all.e_batch;
      for (int t = 0; t < Config::num_d; ++t) one.d[t] = moved<D>(all.d[t], z * all.d_batch[t]);
      if (int status = run(one, tiles(x), variant_of<Config>(int(loops(x))), static_cast<hipStream_t>(stream));
          status != TW_OK)
        return status;
    }
    return TW_OK;
  }
};

}  // namespace tw::hip

#define TW_EXPORT_GEMM(Config, Limits, Manifest) TW_EXPORT_STRUCT(Manifest, tw::hip::Gemm<Config, Limits>)
