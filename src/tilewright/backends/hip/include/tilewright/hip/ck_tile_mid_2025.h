// The glue to CK Tile of mid-2025: a Config to its templates, and what one block does.
//
// In this version hot loop and tail are template parameters: every tail is a kernel of its own (a "variant" of
// gemm.h).  Parts of a split k add to E (atomic_add) instead of writing it (set): a kernel does one or the other.
//
// Only the device's pass sees CK Tile: the host's half of a kernel needs none of it, and compiles in a fraction of the time.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__)
#ifndef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0  // to nearest even; the headers' own choice cuts the digits off
#endif
#pragma clang diagnostic push  // what newer compilers find out of date in it nobody here can mend
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wdeprecated-attributes"
#include <ck_tile/core.hpp>
#include <ck_tile/ops/epilogue/cshuffle_epilogue.hpp>
#include <ck_tile/ops/epilogue/default_2d_epilogue.hpp>
#include <ck_tile/ops/gemm/kernel/gemm_tile_partitioner.hpp>
#include <ck_tile/ops/gemm/kernel/universal_gemm_kernel.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp>
#include <ck_tile/ops/gemm/pipeline/tile_gemm_shape.hpp>
#include <ck_tile/ops/gemm/pipeline/tile_gemm_traits.hpp>
#include <tilewright/hip/ck_tile_mends.h>
#pragma clang diagnostic pop
#endif

#include <tilewright/hip/epilogue.h>
#include <tilewright/hip/gemm.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

using Rows = ck_tile::tensor_layout::gemm::RowMajor;
using Columns = ck_tile::tensor_layout::gemm::ColumnMajor;
using ck_tile::TailNumber;

template <class T, int count> struct Repeated;
template <class T> struct Repeated<T, 0> {
  using type = ck_tile::tuple<>;
};
template <class T> struct Repeated<T, 1> {
  using type = ck_tile::tuple<T>;
};
template <class T> struct Repeated<T, 2> {
  using type = ck_tile::tuple<T, T>;
};

template <class Config> constexpr auto operation =
    Config::split_k > 1 ? ck_tile::memory_operation_enum::atomic_add : ck_tile::memory_operation_enum::set;

// The store through LDS: wide writes, D tensors, any epilogue.
template <class Config> using ThroughLds = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    typename Config::A, typename Config::B, typename Repeated<typename Config::D, Config::num_d>::type,
    typename Config::Acc, typename Config::C, typename Repeated<Rows, Config::num_d>::type, Rows,
    Fused<Config::epilogue>, Config::threads, Config::tile_m, Config::tile_n, Config::warp_grid_m, Config::warp_grid_n,
    Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, operation<Config>, Config::wave_groups,
    Config::narrow_c, Config::width_c>>;

// The store straight from the registers.  Not the raw form: that one skips the bounds check along n.
template <class Config> using FromRegisters = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
    typename Config::A, typename Config::B, typename Config::Acc, typename Config::C, Rows, Config::pad_m,
    Config::pad_n, Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, false, operation<Config>>>;

// A persistent block goes on with its next tile: the first writes of that to LDS must wait until every wave has read
// what it needs of this one.  CK Tile leaves that barrier out.
template <class Config, class Base> struct Finished : Base {
  template <class Out, class Sums, class Ds>
  CK_TILE_DEVICE void operator()(Out &out, const Sums &sums, const Ds &ds, void *lds) {
    Base::template operator()<Out, Sums, Ds>(out, sums, ds, lds);
    if constexpr (Config::persistent) ck_tile::block_sync_lds();
  }
};
template <class Config> using Shuffled = Finished<Config, ThroughLds<Config>>;
template <class Config> using Direct = Finished<Config, FromRegisters<Config>>;

// Elements go through unchanged.  One type for all tails, where CK Tile's own lambdas are of another type in each.
struct Same {
  template <class T> CK_TILE_DEVICE constexpr T operator()(const T &x) const { return x; }
};

template <class Config> struct Device {
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
  using Kernel = ck_tile::UniversalGemmKernel<Partitioner, Pipeline, Store>;
  using Args = typename Kernel::KernelArgs;
  static_assert(Kernel::PersistentKernel == Config::persistent,
                "this pipeline ignores persistence: tiles would be left out");
  static_assert(Kernel::KernelBlockSize == Config::threads, "the block is not the warp grid");
  static_assert(Pipeline::GetVectorSizeA() == Config::width_a, "A is loaded in another width than legality worked out");
  static_assert(Config::preshuffle || Pipeline::GetVectorSizeB() == Config::width_b, "B is loaded in another width");
  static_assert(Store::GetVectorSizeC() == Config::width_c, "E is stored in another width");
  static_assert(Kernel::GetSmemSize() * Config::lds_buffers == Config::lds_bytes,
                "LDS is not what legality worked out");

  // What a variant of gemm.h is to CK Tile, and that CK Tile would choose the same for every number of turns.
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
      // compv4 says that three turns need its hot loop, which with the tail of three makes five: without padding
      // along k the kernel would read past the rows, and with it waste two turns.
      bool ours_alone = Config::tails == Tails::pairs && turns == 3;
      if (tail(variant) != Base::GetBlockLoopTailNum(turns)) return false;
      if (hot(variant) != (Base::BlockHasHotloop(turns) && !ours_alone)) return false;
    }
    return true;
  }

  // The sums of one tile of E.
  template <int variant, class OfA, class OfB, class... Lds>
  static __device__ auto sums(const OfA &a, const OfB &b, int turns, Lds *...lds) {
    if constexpr (one_tail) {
      return Pipeline{}(a, b, turns, lds...);
    } else {
      using Turns = typename Pipeline::template PipelineImpl<Pipeline::Scheduler>;
      return Turns{}.template operator()<hot(variant), tail(variant)>(a, Same{}, b, Same{}, turns, lds...);
    }
  }

  // One tile of E, or one part of its k.
  template <int variant, class... Lds>
  static __device__ void tile(const Args &args, int index, int part, void *lds, Lds *...more) {
    constexpr auto zero = ck_tile::number<0>{};
    constexpr auto one = ck_tile::number<1>{};
    const auto [row, column] = Partitioner{args.M, args.N}.GetOutputTileIndex(index);
    const int m = __builtin_amdgcn_readfirstlane(row * Config::tile_m);
    const int n = __builtin_amdgcn_readfirstlane(column * Config::tile_n);
    const typename Kernel::SplitKBatchOffset of_k(args, part);
    using A = typename Config::A;
    using B = typename Config::B;
    const std::array<const A *, 1> a{static_cast<const A *>(args.as_ptr[0]) + of_k.as_k_split_offset[0]};
    const std::array<const B *, 1> b{static_cast<const B *>(args.bs_ptr[0]) + of_k.bs_k_split_offset[0]};
    auto *e = static_cast<typename Config::C *>(args.e_ptr);
    const auto &views = Kernel::template MakeGemmTensorViews<operation<Config>>(a, b, args.ds_ptr, e, args, of_k);
    const auto &padded = Kernel::MakeGemmPadViews(views);
    auto windows = Kernel::MakeGemmTileWindows(padded, m, n);
    const int turns = __builtin_amdgcn_readfirstlane(Partitioner::GetLoopNum(of_k.splitted_k));
    const auto &all = sums<variant>(windows.at(zero)[zero], windows.at(one)[zero], turns, lds, more...);
    // With two groups of waves, the first has the sums of both.
    if (Config::wave_groups == 1 || ck_tile::get_warp_id() == 0)
      Store{}(windows.at(ck_tile::number<3>{}), all, windows.at(ck_tile::number<2>{}), lds);
  }

  // As many as there are D tensors.
  template <class T> static __device__ std::array<T, Config::num_d> first(const T (&of)[TW_MAX_D]) {
    if constexpr (Config::num_d == 0) return {};
    else if constexpr (Config::num_d == 1) return {of[0]};
    else return {of[0], of[1]};
  }

  template <int variant> static __device__ void run(const Launch &x) {
    static_assert(as_ck_tile(), "CK Tile chooses other tails than ours");
    const Args args{{x.a},
                    {x.b},
                    first<const void *>(x.d),
                    x.e,
                    x.m,
                    x.n,
                    x.k,
                    {x.a_stride},
                    {x.b_stride},
                    first<int>(x.d_stride),
                    x.e_stride,
                    Config::split_k};
    __shared__ char lds[Kernel::GetSmemSize()];
    if constexpr (Config::persistent) {
      const int tiles = __builtin_amdgcn_readfirstlane(Partitioner::GridSize(x.m, x.n));
      const int work = __builtin_amdgcn_readfirstlane(tiles * Config::split_k),
                step = __builtin_amdgcn_readfirstlane(gridDim.x);
      for (int at = __builtin_amdgcn_readfirstlane(blockIdx.x); at < work; at += step)
        tile<variant>(args, __builtin_amdgcn_readfirstlane(at % tiles), __builtin_amdgcn_readfirstlane(at / tiles),
                      lds);
    } else if constexpr (Config::lds_buffers == 2) {
      __shared__ char other[Kernel::GetSmemSize()];
      tile<variant>(args, __builtin_amdgcn_readfirstlane(blockIdx.x), blockIdx.z, lds, static_cast<void *>(other));
    } else {
      tile<variant>(args, __builtin_amdgcn_readfirstlane(blockIdx.x), blockIdx.z, lds);
    }
  }
};

}  // namespace tw::hip
#endif
