// CK Tile as its own examples have it: hot loop and tail are part of the types, so each tail has its own pipeline,
// block GEMM and kernel, and its own store writes E.  Only the benchmark of compile times uses this; it stands at the
// end of our glue there.
#include <ck_tile/ops/epilogue/cshuffle_epilogue.hpp>
#include <ck_tile/ops/gemm/kernel/universal_gemm_kernel.hpp>

namespace tw::hip {

template <class T> struct Theirs {
  using type = T;
};
template <> struct Theirs<fp16> {
  using type = ck_tile::half_t;
};
template <> struct Theirs<bf16> {
  using type = ck_tile::bf16_t;
};

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

template <Epilogue Kind> struct Fused {
  template <class E, class C, class... D> __device__ void operator()(E &e, const C &c, const D &...d) const {
    constexpr bool multiplies = Kind == Epilogue::MultiDMultiply;
    if constexpr (Kind == Epilogue::PassThrough && sizeof...(d) == 0) {
      e = c;
      return;
    }
    float x = ck_tile::type_convert<float>(c);
    ((x = multiplies ? x * ck_tile::type_convert<float>(d) : x + ck_tile::type_convert<float>(d)), ...);
    e = ck_tile::type_convert<E>(activate<Kind>(x));
  }
};

template <class Config> using TheirStore = ck_tile::CShuffleEpilogue<ck_tile::CShuffleEpilogueProblem<
    typename Config::A, typename Config::B,
    typename Repeated<typename Theirs<typename Config::D>::type, Config::num_d>::type, typename Config::Acc,
    typename Theirs<typename Config::C>::type, typename Repeated<Rows, Config::num_d>::type, Rows,
    Fused<Config::epilogue>, Config::threads, Config::tile_m, Config::tile_n, Config::warp_grid_m, Config::warp_grid_n,
    Config::warp_tile_m, Config::warp_tile_n, Config::warp_tile_k, false, ck_tile::memory_operation_enum::set,
    Config::wave_groups>>;

template <class Config> struct Naive {
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

  template <int variant> using Problem =
      ck_tile::UniversalGemmPipelineProblem<typename Config::A, typename Config::B, typename Config::Acc, Shape, Traits,
                                            Config::scheduler, hot(variant), tail(variant)>;
  template <int variant> using Kernel =
      ck_tile::UniversalGemmKernel<Partitioner, typename Config::template Pipeline<Problem<variant>>,
                                   TheirStore<Config>>;

  template <class T, class Of> static __device__ std::array<T, Config::num_d> first(const Of (&of)[TW_MAX_D]) {
    if constexpr (Config::num_d == 0) return {};
    else if constexpr (Config::num_d == 1) return {T(of[0])};
    else return {T(of[0]), T(of[1])};
  }
  template <int variant> static __device__ void run(const Launch &x) {
    typename Kernel<variant>::KernelArgs args{{x.a},
                                              {x.b},
                                              first<const void *>(x.d),
                                              x.e,
                                              x.m,
                                              x.n,
                                              x.k,
                                              {x.a_stride},
                                              {x.b_stride},
                                              first<int>(x.d_stride),
                                              int(x.e_stride),
                                              Config::split_k};
    Kernel<variant>{}(args);
  }
  // What the host's pass needs of a kernel: its arguments and the sizes that are checked.
  template <int variant> static constexpr bool known() {
    return sizeof(typename Kernel<variant>::KernelArgs) > 0 && Kernel<variant>::GetSmemSize() > 0 &&
           Kernel<variant>::GemmPipeline::GetVectorSizeA() > 0;
  }
};

}  // namespace tw::hip
