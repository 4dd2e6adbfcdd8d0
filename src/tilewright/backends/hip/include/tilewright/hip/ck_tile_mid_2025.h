// The glue to CK Tile of mid-2025: a Config to its templates, and the launch of one matrix.
//
// In this version hot loop and tail are template parameters: every tail is a kernel of its own, and the
// pipeline's TailHandler picks the one that fits the number of turns of the k loop.  Parts of a split k add
// to E (atomic_add) instead of writing it (set): a kernel does one or the other, never both.
#pragma once
#ifndef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0  // to nearest even; the headers' own choice cuts the digits off
#endif
#include <ck_tile/core.hpp>
#include <ck_tile/ops/epilogue/cshuffle_epilogue.hpp>
#include <ck_tile/ops/epilogue/default_2d_epilogue.hpp>
#include <ck_tile/ops/gemm/kernel/gemm_tile_partitioner.hpp>
#include <ck_tile/ops/gemm/kernel/universal_gemm_kernel.hpp>
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_problem.hpp>
#include <ck_tile/ops/gemm/pipeline/tile_gemm_shape.hpp>
#include <ck_tile/ops/gemm/pipeline/tile_gemm_traits.hpp>

#include <tilewright/hip/epilogue.h>
#include <tilewright/hip/gemm.h>

namespace tw::hip {

using Rows = ck_tile::tensor_layout::gemm::RowMajor;
using Columns = ck_tile::tensor_layout::gemm::ColumnMajor;

template <class T, int count> struct Repeated;
template <class T> struct Repeated<T, 0> { using type = ck_tile::tuple<>; };
template <class T> struct Repeated<T, 1> { using type = ck_tile::tuple<T>; };
template <class T> struct Repeated<T, 2> { using type = ck_tile::tuple<T, T>; };

template <class Config>
constexpr auto operation = Config::split_k > 1 ? ck_tile::memory_operation_enum::atomic_add : ck_tile::memory_operation_enum::set;

template <class Config>
constexpr int block_threads = 64 * Config::warp_grid_m * Config::warp_grid_n * Config::warp_grid_k;

// The store through LDS: wide writes, D tensors, any epilogue.
template <class Config>
using ThroughLds = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    typename Config::A, typename Config::B, typename Repeated<typename Config::D, Config::num_d>::type, typename Config::Acc,
    typename Config::C, typename Repeated<Rows, Config::num_d>::type, Rows, Fused<Config::epilogue>, block_threads<Config>,
    Config::tile_m, Config::tile_n, Config::warp_grid_m, Config::warp_grid_n, Config::warp_tile_m, Config::warp_tile_n,
    Config::warp_tile_k, false, operation<Config>, Config::wave_groups, Config::narrow_c, Config::width_c>>;

// The store straight from the registers.  Not the raw form: that one skips the bounds check along n.
template <class Config>
using FromRegisters = ck_tile::DefaultGemm2DEpilogue<ck_tile::DefaultGemm2DEpilogueProblem<
    typename Config::A, typename Config::B, typename Config::Acc, typename Config::C, Rows, Config::pad_m, Config::pad_n,
    Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, false, operation<Config>>>;

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

template <class Config> struct Device {
  using Shape = ck_tile::TileGemmShape<ck_tile::sequence<Config::tile_m, Config::tile_n, Config::tile_k>,
                                       ck_tile::sequence<Config::warp_grid_m, Config::warp_grid_n, Config::warp_grid_k>,
                                       ck_tile::sequence<Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k>>;
  using Partitioner = ck_tile::GemmSpatiallyLocalTilePartitioner<Shape, 8, 4>;
  using Traits = ck_tile::TileGemmUniversalTraits<
      Config::pad_m, Config::pad_n, Config::pad_k, (Config::lds_buffers > 1), std::conditional_t<Config::a_rows, Rows, Columns>,
      std::conditional_t<Config::b_rows, Rows, Columns>, Rows, false, false, Config::persistent, Config::wave_groups, Config::preshuffle>;
  template <bool hot, ck_tile::TailNumber tail>
  using Problem = ck_tile::UniversalGemmPipelineProblem<typename Config::A, typename Config::B, typename Config::Acc, Shape, Traits,
                                                        Config::scheduler, hot, tail>;
  using Base = typename Config::template PipelineBase<Problem<true, ck_tile::TailNumber::Full>>;

  // bf16 has no buffer atomics: its sums are added through plain pointers, and only n is checked.
  static constexpr bool unguarded_sums = std::is_same_v<typename Config::C, ck_tile::bf16_t>;

  template <bool hot, ck_tile::TailNumber tail> struct Instance {
    using Pipeline = typename Config::template Pipeline<Problem<hot, tail>>;
    using Store = typename Config::template Store<Config>;
    using Kernel = ck_tile::UniversalGemmKernel<Partitioner, Pipeline, Store>;
    static_assert(Kernel::PersistentKernel == Config::persistent, "this pipeline ignores persistence: tiles would be left out");
    static_assert(Kernel::KernelBlockSize == block_threads<Config>, "the block is not the warp grid");
    static_assert(Pipeline::GetVectorSizeA() == Config::width_a, "A is loaded in another width than legality worked out");
    static_assert(Config::preshuffle || Pipeline::GetVectorSizeB() == Config::width_b, "B is loaded in another width");
    static_assert(Store::GetVectorSizeC() == Config::width_c, "E is stored in another width");
    static_assert(Kernel::GetSmemSize() * Config::lds_buffers == Config::lds_bytes, "LDS is not what legality worked out");
  };

  template <class Kernel> static dim3 grid(const tw_gemm_args &x) {
    if constexpr (Config::persistent) {
      // As many blocks as run at once; the kernel walks over the tiles.
      static const int blocks = [] {
        int device = 0, units = 0, each = 0;
        if (hipGetDevice(&device) != hipSuccess ||
            hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device) != hipSuccess ||
            hipOccupancyMaxActiveBlocksPerMultiprocessor(
                &each, ck_tile::kentry<block_threads<Config>, 1, Kernel, typename Kernel::KernelArgs>, block_threads<Config>, 0) !=
                hipSuccess)
          return 0;
        return units * (each < 1 ? 1 : each);
      }();
      if (blocks > 0) return dim3(blocks);
    }
    dim3 all = Kernel::GridSize(x.m, x.n, Config::split_k);
    return Config::persistent ? dim3(all.x * all.z) : all;  // a persistent block finds its part of k by itself
  }

  static int run(const tw_gemm_args &x, int loops, hipStream_t stream) {
    auto go = [&](auto hot, auto tail) {
      using Kernel = typename Instance<decltype(hot)::value, decltype(tail)::value>::Kernel;
      std::array<const void *, Config::num_d> ds{};
      std::array<ck_tile::index_t, Config::num_d> d_strides{};
      for (int t = 0; t < Config::num_d; ++t) ds[t] = x.d[t], d_strides[t] = int(x.d_row_stride[t]);
      int b_stride = int(Config::preshuffle ? x.k : x.b_stride);
      typename Kernel::KernelArgs args{{x.a}, {x.b}, ds, x.e, int(x.m), int(x.n), int(x.k), {int(x.a_stride)}, {b_stride},
                                       d_strides, int(x.e_stride), Config::split_k};
      ck_tile::kentry<block_threads<Config>, 1, Kernel, typename Kernel::KernelArgs>
          <<<grid<Kernel>(x), dim3(block_threads<Config>), 0, stream>>>(args);
      return hipGetLastError() == hipSuccess ? int(TW_OK) : int(TW_DEVICE);
    };
    // compv4 says that three turns need its hot loop, which with the tail of three makes five: without padding
    // along k the kernel would read past the rows, and with it waste two turns.
    bool hot = Base::BlockHasHotloop(loops) && !(Config::lds_buffers == 2 && loops == 3);
    return Base::TailHandler(go, hot, Base::GetBlockLoopTailNum(loops));
  }
};

}  // namespace tw::hip

#define TW_EXPORT_GEMM(Config, Manifest)                                                                 \
  TW_EXPORT_KERNEL(Manifest, (tw::hip::Gemm<Config, tw::hip::Device<Config>>::check),                    \
                   (tw::hip::Gemm<Config, tw::hip::Device<Config>>::workspace),                          \
                   (tw::hip::Gemm<Config, tw::hip::Device<Config>>::launch),                             \
                   (Config::preshuffle ? tw::hip::Gemm<Config, tw::hip::Device<Config>>::packed_bytes : nullptr), \
                   (Config::preshuffle ? tw::hip::Gemm<Config, tw::hip::Device<Config>>::pack : nullptr))
