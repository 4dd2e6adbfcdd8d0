// A Config to CK Tile's templates, and what one block does.  What differs between versions of CK Tile is in the glue
// header of the version (glue_*.h), which includes this one: generated kernels include the glue.
//
// Hot loop and tail are template parameters: every tail is a kernel of its own (a "variant" of gemm.h).  Of CK Tile's
// kernel only partitioner and pipeline are used; store.h has the epilogue.
//
// Only the device's pass sees CK Tile: the host's half of a kernel needs none of it, and compiles in a fraction of the time.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__)
#ifndef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0  // to nearest even; the headers' own choice cuts the digits off
#endif
#ifndef CK_TILE_EXPERIMENTAL_USE_BUFFER_LOAD_OOB_CHECK_OFFSET_TRICK
// What lies outside of an operand is read at an offset behind its end, where the hardware answers 0: operands are below
// 2 GiB.  Else every element is chosen in registers right behind its load, and the main loop waits for the load there.
#define CK_TILE_EXPERIMENTAL_USE_BUFFER_LOAD_OOB_CHECK_OFFSET_TRICK 1
#endif
#pragma clang diagnostic push  // what newer compilers find out of date in it nobody here can mend
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wdeprecated-attributes"
#include <ck_tile/core.hpp>
#include <ck_tile/ops/common.hpp>
#include <ck_tile/ops/gemm/kernel/gemm_tile_partitioner.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp>
#include <ck_tile/ops/gemm/pipeline/tile_gemm_shape.hpp>
#include <ck_tile/ops/gemm/pipeline/tile_gemm_traits.hpp>
#pragma clang diagnostic pop
#endif

#include <tilewright/hip/gemm.h>
#include <tilewright/hip/gemm/ck_tile/limits.h>
#include <tilewright/hip/store.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

using Rows = ck_tile::tensor_layout::gemm::RowMajor;
using Columns = ck_tile::tensor_layout::gemm::ColumnMajor;
using ck_tile::TailNumber;

// What a version of CK Tile has otherwise than others; its glue header defines it.
//   Same           elements of A and B go through unchanged: one type for all tails, where CK Tile's own lambdas are of
//                  another type in each
//   operand(...)   the window of A or B as a pipeline takes it
template <class Config> struct CkTile;

// The product of a tile, whatever its operands are windows of.
template <class Config> struct Product {
  using Shape =
      ck_tile::TileGemmShape<ck_tile::sequence<Config::tile_m, Config::tile_n, Config::tile_k>,
                             ck_tile::sequence<Config::warp_grid_m, Config::warp_grid_n, Config::warp_grid_k>,
                             ck_tile::sequence<Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k>>;
  using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, 8, 4>;
  using Traits =
      ck_tile::TileGemmUniversalTraits<Config::pad_m, Config::pad_n, Config::pad_k, (Config::lds_buffers > 1),
                                       std::conditional_t<Config::a_rows, Rows, Columns>,
                                       std::conditional_t<Config::b_rows, Rows, Columns>, Rows, false, false,
                                       Config::persistent, Config::wave_groups, Config::preshuffle>;

  // One problem, pipeline and kernel type for all tails.  Were the tail a part of these types, as CK Tile has it, the
  // compiler would make every function under them once for each tail.
  static constexpr bool one_tail = Config::tails == Tails::one;
  using Problem =
      ck_tile::UniversalGemmPipelineProblem<typename Config::A, typename Config::B, typename Config::Acc, Shape, Traits,
                                            Config::scheduler, true, one_tail ? TailNumber::Empty : TailNumber::Full>;
  using Pipeline = typename Config::template Pipeline<Problem>;
  using Store = typename Config::template Store<Config>;
  static constexpr int stage_bytes = Pipeline::GetSmemSize();
  static constexpr int lds_bytes = stage_bytes > Store::lds_bytes ? stage_bytes : Store::lds_bytes;
  static_assert(Pipeline::BlockSize == Config::threads, "the block is not the warp grid");
  static_assert(Pipeline::GetVectorSizeA() == Config::width_a, "A is loaded in another width than legality worked out");
  static_assert(Config::preshuffle || Pipeline::GetVectorSizeB() == Config::width_b, "B is loaded in another width");
  static_assert(lds_bytes + (Config::lds_buffers - 1) * stage_bytes == Config::lds_bytes,
                "LDS is not what legality worked out");

  // What a variant of gemm.h is to CK Tile, and that CK Tile would choose the same for every number of iterations.
  static constexpr bool hot(int variant) {
    return Config::tails == Tails::three ? variant == 0 : variant < Config::stages;
  }
  static constexpr TailNumber tail(int variant) {
    constexpr TailNumber of_three[] = {TailNumber::Full, TailNumber::Odd, TailNumber::Even};
    constexpr TailNumber of_pairs[] = {TailNumber::Two, TailNumber::Three};
    constexpr TailNumber of_stages[] = {TailNumber::Full, TailNumber::One,  TailNumber::Two, TailNumber::Three,
                                        TailNumber::Four, TailNumber::Five, TailNumber::Six, TailNumber::Seven};
    if (Config::tails == Tails::one) return TailNumber::Empty;
    if (Config::tails == Tails::three) return of_three[variant];
    return Config::tails == Tails::pairs ? of_pairs[variant % 2] : of_stages[variant % Config::stages];
  }
  static constexpr bool as_ck_tile() {
    using Base = typename Config::template PipelineBase<Problem>;
    for (int turns = Config::least_loops; turns < 40; ++turns) {
      int variant = variant_of<Config>(turns);
      // compv4 says that three iterations need its hot loop, which with the tail of three makes five: without padding
      // along k the kernel would read past the rows, and with it waste two iterations.
      bool ours_alone = Config::tails == Tails::pairs && turns == 3;
      if (tail(variant) != Base::GetBlockLoopTailNum(turns)) return false;
      if (hot(variant) != (Base::BlockHasHotloop(turns) && !ours_alone)) return false;
    }
    return true;
  }

  // The accumulators of one tile of E.
  template <int variant, class OfA, class OfB, class... Lds>
  static __device__ auto accum(const OfA &a, const OfB &b, int turns, Lds *...lds) {
    if constexpr (one_tail) {
      return Pipeline{}(a, b, turns, lds...);
    } else {
      using Turns = typename Pipeline::template PipelineImpl<Pipeline::Scheduler>;
      const typename CkTile<Config>::Same same;
      return Turns{}.template operator()<hot(variant), tail(variant)>(a, same, b, same, turns, lds...);
    }
  }
};

template <class Config> struct Device : Product<Config> {
  using Base = Product<Config>;
  using Base::as_ck_tile;
  using Base::lds_bytes;
  using Base::stage_bytes;
  using typename Base::Partitioner;
  using typename Base::Pipeline;
  using typename Base::Store;

  // A matrix in memory, and the block's first tile of it; `padded`: reads past the end of a row are zeros.
  template <int rows, int columns, bool padded, int width, class T>
  static __device__ auto window(const T *at, int height, int length, int stride, int row, int column) {
    const auto view = ck_tile::make_naive_tensor_view<ck_tile::address_space_enum::global>(
        at, ck_tile::make_tuple(height, length), ck_tile::make_tuple(stride, 1), ck_tile::number<width>{},
        ck_tile::number<1>{});
    constexpr auto lengths = ck_tile::make_tuple(ck_tile::number<rows>{}, ck_tile::number<columns>{});
    return ck_tile::make_tile_window(ck_tile::pad_tensor_view(view, lengths, ck_tile::sequence<false, padded>{}),
                                     lengths, {row, column});
  }
  // From row m and the k that a split begins with; `depth` is what it has of k.
  static __device__ auto window_a(const Launch &x, const typename Config::A *a, int depth, int m) {
    if constexpr (Config::a_rows)
      return window<Config::tile_m, Config::tile_k, Config::pad_k, Config::width_a>(a, x.m, depth, x.a_stride, m, 0);
    else return window<Config::tile_k, Config::tile_m, Config::pad_m, Config::width_a>(a, depth, x.m, x.a_stride, 0, m);
  }
  static __device__ auto window_b(const Launch &x, const typename Config::B *b, int depth, int n) {
    if constexpr (Config::preshuffle) {  // panels of warp_tile_n columns are the rows
      using Warps = typename Pipeline::BlockGemmShape;
      const int length = Warps::flatKPerWarp * (x.k / Config::warp_tile_k);
      return window<Warps::flatNPerWarp, Warps::flatKPerWarp, false, Pipeline::GetVectorSizeB()>(
          b, x.n * x.k / length, length, length, n / Config::warp_tile_n, 0);
    } else if constexpr (Config::b_rows) {
      return window<Config::tile_k, Config::tile_n, Config::pad_n, Config::width_b>(b, depth, x.n, x.b_stride, 0, n);
    } else {
      return window<Config::tile_n, Config::tile_k, Config::pad_k, Config::width_b>(b, x.n, depth, x.b_stride, n, 0);
    }
  }

  // One tile of E, or one split of its k, of a matrix of the batch.
  template <int variant, class... Lds>
  static __device__ void tile(const Launch &x, int index, int part, int z, char *lds, Lds *...more) {
    const auto [row, column] = Partitioner{x.m, x.n}.GetOutputTileIndex(index);
    const int m = __builtin_amdgcn_readfirstlane(row * Config::tile_m);
    const int n = __builtin_amdgcn_readfirstlane(column * Config::tile_n);
    constexpr int step = Config::tile_k * Config::split_k;
    const int turns = __builtin_amdgcn_readfirstlane((x.k + step - 1) / step);
    // Splits have as many iterations each; what the last has less of k it reads as zeros.
    const int first = Config::split_k > 1 ? __builtin_amdgcn_readfirstlane(part * turns * Config::tile_k) : 0;
    const int left = x.k - first, whole = turns * Config::tile_k;
    const int depth = Config::split_k > 1 && left > whole ? whole : left;
    const auto *a = static_cast<const typename Config::A *>(x.a) + z * x.a_batch;
    const auto *b = static_cast<const typename Config::B *>(x.b) + z * x.b_batch;
    const auto of_a = window_a(x, a + (Config::a_rows ? first : int64_t(first) * x.a_stride), depth, m);
    const auto of_b = window_b(x, b + (Config::b_rows ? int64_t(first) * x.b_stride : first), depth, n);
    const auto &all = Base::template accum<variant>(CkTile<Config>::operand(of_a), CkTile<Config>::operand(of_b), turns,
                                                    static_cast<void *>(lds), more...);
    // With two groups of waves, the first has the accumulators of both.
    if (Config::wave_groups == 1 || ck_tile::get_warp_id() == 0) {
      if constexpr (Config::split_k > 1) Store::store_tile(x.m, all, Part<Config>{x, part}, {z, m, n}, lds);
      else Store::store_tile(x.m, all, Finished<Config>{x}, {z, m, n}, lds);
    }
  }

  // The block's tile, or, where blocks stay, every so many of all there are.
  template <int variant, class... Lds> static __device__ void tiles(const Launch &x, char *lds, Lds *...more) {
    if constexpr (!Config::persistent) {
      tile<variant>(x, __builtin_amdgcn_readfirstlane(blockIdx.x), blockIdx.z, blockIdx.y, lds, more...);
    } else {
      const int count = __builtin_amdgcn_readfirstlane(Partitioner::GridSize(x.m, x.n));
      const int work = __builtin_amdgcn_readfirstlane(count * x.parts * x.batch),
                step = __builtin_amdgcn_readfirstlane(gridDim.x);
      for (int at = __builtin_amdgcn_readfirstlane(blockIdx.x); at < work; at += step) {
        const int rest = __builtin_amdgcn_readfirstlane(at / count);
        tile<variant>(x, __builtin_amdgcn_readfirstlane(at % count), __builtin_amdgcn_readfirstlane(rest % x.parts),
                      __builtin_amdgcn_readfirstlane(rest / x.parts), lds, more...);
        // The next tile's first writes to LDS wait until every wave has read what it needs of this one.
        __syncthreads();
      }
    }
  }

  template <int variant> static __device__ void run(const Launch &x) {
    static_assert(as_ck_tile(), "CK Tile chooses other tails than ours");
    static_assert(!Config::persistent || Config::wave_groups == 1, "a wave that stores nothing would run ahead");
    __shared__ __attribute__((aligned(16))) char lds[lds_bytes];
    if constexpr (Config::lds_buffers == 2) {
      __shared__ __attribute__((aligned(16))) char other[stage_bytes];
      tiles<variant>(x, lds, static_cast<void *>(other));
    } else {
      tiles<variant>(x, lds);
    }
  }

  static __device__ void finish(const Launch &x) { add_splits<Config>(x, Finished<Config>{x}); }
};

}  // namespace tw::hip
#endif
