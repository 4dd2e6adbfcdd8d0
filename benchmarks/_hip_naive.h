// CK Tile as its own examples have it: hot loop and tail are part of the types, so each tail has its own pipeline,
// block GEMM and kernel.  Only the benchmark of compile times uses this; it stands at the end of our glue there.
namespace tw::hip {

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
                                   typename Config::template Store<Config>>;

  template <class T> static __device__ std::array<T, Config::num_d> first(const T (&of)[TW_MAX_D]) {
    if constexpr (Config::num_d == 0) return {};
    else if constexpr (Config::num_d == 1) return {of[0]};
    else return {of[0], of[1]};
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
                                              x.e_stride,
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
