// A GEMM kernel behind the C ABI: what it refuses, with a sentence, and how its launches are made.
// Nothing here depends on CK Tile: a Device (the glue header of the version, in the device's pass only) says what a
// block does.  So the passes of the compiler see different texts, and must agree on two things: the names of
// kernels, which follow from the name of the Config, and their argument, a Launch.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/gemm_rules.h>

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

// What a launch tells its blocks; CK Tile's own struct is not the same to every C++ library.
struct Launch {
  const void *a, *b, *d[TW_MAX_D];
  void *e;
  int m, n, k, a_stride, b_stride, d_stride[TW_MAX_D], e_stride;
};

// A pipeline may need other code for the last turns of its k loop, chosen by the number of turns: each such tail is a
// kernel of its own, a variant.  `three`: many turns, one, two.  `pairs` and `stages`: what is left over of a round of
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
    if (x.n % Config::warp_tile_n || x.k % Config::warp_tile_k) return TW_DIVISIBILITY;
    // Copied, not computed with: any type of the size does.
    using Word = std::conditional_t<sizeof(B) == 1, uint8_t, std::conditional_t<sizeof(B) == 2, uint16_t, uint32_t>>;
    for (int64_t z = 0; z < batch && total; ++z)
      pack_b<Word, Config::warp_tile_n, Config::warp_tile_k>
          <<<dim3((total + 255) / 256), dim3(256), 0, static_cast<hipStream_t>(stream)>>>(
              static_cast<const Word *>(x.b) + z * x.b_batch_stride, x.b_stride,
              static_cast<Word *>(packed) + z * total, x.k, total);
    return hipGetLastError() == hipSuccess ? TW_OK : TW_DEVICE;
  }
};

template <class Config> struct Gemm : Packing<Config, Config::preshuffle> {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr int64_t most_bytes = int64_t(1) << 31;  // offsets inside an operand are 32-bit

  static bool apart(const void *pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes != 0; }

  // The first rule that is broken.  The op's `supports` says the same in Python.
  static Answer broken(const tw_gemm_args *args) {
    if (const Answer common = broken_sizes<Config>(args, Config::preshuffle); common.code) return common;
    const tw_gemm_args &x = *args;
    if (x.alpha != 1) return {TW_LIMIT, "alpha is not 1: CK Tile kernels scale nothing"};
    if (x.beta != 0) return {TW_LIMIT, "beta is not 0: CK Tile kernels add no C (give it as a D tensor of MultiDAdd)"};
    if (empty(x)) return {};
    for (int t = 0; t < Config::num_d; ++t) {
      if (!x.d[t]) return {TW_BAD_ARGS, "a D tensor is null"};
      if (x.d_col_stride[t] != 1) return {TW_BAD_ARGS, "the column stride of a D tensor is not 1"};
      if (x.d_row_stride[t] % Config::width_d || x.d_batch_stride[t] % Config::width_d ||
          apart(x.d[t], Config::width_d * sizeof(D)))
        return {TW_ALIGNMENT, "a D tensor or its stride is not aligned to the width of its loads"};
    }
    if ((Config::a_rows ? x.k : x.m) % Config::width_a || x.a_stride % Config::width_a ||
        x.a_batch_stride % Config::width_a)
      return {TW_ALIGNMENT, "the contiguous extent or a stride of A is not a multiple of the width of its loads"};
    if (!Config::preshuffle && ((Config::b_rows ? x.n : x.k) % Config::width_b || x.b_stride % Config::width_b ||
                                x.b_batch_stride % Config::width_b))
      return {TW_ALIGNMENT, "the contiguous extent or a stride of B is not a multiple of the width of its loads"};
    if (x.n % Config::width_c || x.e_stride % Config::width_c || x.e_batch_stride % Config::width_c)
      return {TW_ALIGNMENT, "n or a stride of E is not a multiple of the width of its stores"};
    if (apart(x.a, Config::width_a * sizeof(A)) || apart(x.b, Config::preshuffle ? 16 : Config::width_b * sizeof(B)) ||
        apart(x.e, Config::width_c * sizeof(C)))
      return {TW_ALIGNMENT, "A, B or E is not aligned to the width of its accesses"};
    if ((Config::a_rows ? x.m : x.k) * x.a_stride * int64_t(sizeof(A)) >= most_bytes ||
        (Config::preshuffle ? x.n * x.k : (Config::b_rows ? x.k : x.n) * x.b_stride) * int64_t(sizeof(B)) >=
            most_bytes ||
        x.m * x.e_stride * int64_t(sizeof(C)) >= most_bytes)
      return {TW_LIMIT, "an operand spans 2 GiB or more"};
    if (!Config::pad_m && x.m % Config::tile_m)
      return {TW_DIVISIBILITY, "m is not a multiple of tile_m and the kernel has no edge code"};
    if (!Config::pad_n && x.n % Config::tile_n)
      return {TW_DIVISIBILITY, "n is not a multiple of tile_n and the kernel has no edge code"};
    if (!Config::pad_k && x.k % (Config::tile_k * Config::split_k * Config::loop_step))
      return {TW_DIVISIBILITY, Config::preshuffle
                                   ? "k is not a multiple of two tile_k"
                                   : "k is not a multiple of tile_k times split_k and the kernel has no edge code"};
    if (loops(x) < Config::least_loops)
      return {TW_LIMIT, "k is too short: the pipeline needs more turns of its k loop"};
    if (Config::split_k > 1 && x.k % (Config::tile_k * Config::split_k))
      return {TW_DIVISIBILITY, "k does not split into equal parts of whole tiles"};
    if (Config::split_k > 1 && Config::unguarded_sums && x.m % Config::tile_m)
      return {TW_DIVISIBILITY, "m is not a multiple of tile_m, and sums of this type are added without a bounds check"};
    if (Config::preshuffle && x.n % Config::warp_tile_n)
      return {TW_DIVISIBILITY, "n is not a multiple of warp_tile_n, the columns of a packed panel"};
    return {};
  }

  static int64_t loops(const tw_gemm_args &x) {
    int64_t step = int64_t(Config::tile_k) * Config::split_k;
    return (x.k + step - 1) / step;
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_gemm_args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }

  // The kernel of a variant, as the runtime wants it named.
  template <int... every> static const void *chosen(int variant, std::integer_sequence<int, every...>) {
    static const void *const all[] = {reinterpret_cast<const void *>(&block<Config, every>)...};
    return all[variant];
  }

  static int64_t tiles(const tw_gemm_args &x) {
    return ((x.m + Config::tile_m - 1) / Config::tile_m) * ((x.n + Config::tile_n - 1) / Config::tile_n);
  }

  // One matrix.
  static int run(const tw_gemm_args &x, hipStream_t stream) {
    const void *kernel = chosen(variant_of<Config>(int(loops(x))), std::make_integer_sequence<int, variants<Config>>());
    Launch one{x.a,
               x.b,
               {x.d[0], x.d[1]},
               x.e,
               int(x.m),
               int(x.n),
               int(x.k),
               int(x.a_stride),
               int(Config::preshuffle ? x.k : x.b_stride),
               {int(x.d_row_stride[0]), int(x.d_row_stride[1])},
               int(x.e_stride)};
    dim3 grid(tiles(x), 1, Config::split_k);
    if constexpr (Config::persistent) {
      // As many blocks as run at once; the kernel walks over the tiles, and finds its part of k by itself.
      static const int blocks = [kernel] {
        int device = 0, units = 0, each = 0;
        if (hipGetDevice(&device) != hipSuccess ||
            hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device) != hipSuccess ||
            hipOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, Config::threads, 0) != hipSuccess)
          return 0;
        return units * (each < 1 ? 1 : each);
      }();
      grid = blocks > 0 ? dim3(blocks) : dim3(tiles(x) * Config::split_k);
    }
    void *args[] = {&one};
    return hipLaunchKernel(kernel, grid, dim3(Config::threads), args, 0, stream) == hipSuccess ? int(TW_OK)
                                                                                               : int(TW_DEVICE);
  }

  // One matrix of the batch after the other, all on the stream.  What changes from call to call, pointers and
  // scalars, is checked here too: a wide load from a misaligned address would give wrong numbers, not an error.
  static int launch(const void *args, void *, void *stream) {
    if (int code = broken(static_cast<const tw_gemm_args *>(args)).code) return code;
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    auto on = static_cast<hipStream_t>(stream);
    for (int64_t z = 0; z < x.batch; ++z) {
      tw_gemm_args one = x;
      one.a = static_cast<const A *>(x.a) + z * x.a_batch_stride;
      one.b = static_cast<const B *>(x.b) +
              (Config::preshuffle ? (x.b_batch_stride ? z : 0) * x.n * x.k : z * x.b_batch_stride);
      one.e = static_cast<C *>(x.e) + z * x.e_batch_stride;
      for (int t = 0; t < Config::num_d; ++t) one.d[t] = static_cast<const D *>(x.d[t]) + z * x.d_batch_stride[t];
      // The parts of a split k add to E, so E starts at zero.
      if (Config::split_k > 1 &&
          hipMemset2DAsync(one.e, x.e_stride * sizeof(C), 0, x.n * sizeof(C), x.m, on) != hipSuccess)
        return TW_DEVICE;
      int status = run(one, on);
      if (status != TW_OK) return status;
    }
    return TW_OK;
  }
};

}  // namespace tw::hip

#define TW_EXPORT_GEMM(Config, Manifest) TW_EXPORT_STRUCT(Manifest, tw::hip::Gemm<Config>)
