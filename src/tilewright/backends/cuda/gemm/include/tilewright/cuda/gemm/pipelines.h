// The pipelines of a GEMM kernel, and the shape each makes of a Config (what and how, filled in by the generated file).
#pragma once
#include <tilewright/cuda/gemm/skinny/shape.h>
#include <tilewright/cuda/gemm/tma_ws/shape.h>
#include <tilewright/gpu/multistage_shape.h>

namespace tw {

enum class Pipeline { tma_ws, multistage, skinny, loops };

// wgmma reads elements of two bytes along k and along lines, others along k only: those are transposed by a copy first.
template <class C> constexpr bool turns_a = sizeof(typename C::A) != 2 && !C::a_rows;
template <class C> constexpr bool turns_b = sizeof(typename C::B) != 2 && C::b_rows && !C::packed;
template <class C> constexpr int transposed_bytes = turns_a<C> || turns_b<C> ? int(sizeof(typename C::A)) : 0;
template <class C> constexpr bool lines_a = !C::a_rows && !turns_a<C>;
template <class C> constexpr bool lines_b = C::b_rows && !C::packed && !turns_b<C>;

// Two B, whose accumulators a gate multiplies.
template <class C> constexpr bool is_dual = gated<C::epilogue> && C::num_d == 0;

template <class C> using tma_ws_of =
    TmaWs<typename C::A, C::swap_ab ? C::tile_n : C::tile_m, C::swap_ab ? C::tile_m : C::tile_n, C::stages,
          C::swap_ab ? C::cluster_n : C::cluster_m, C::swap_ab ? C::cluster_m : C::cluster_n, C::pingpong, C::swap_ab,
          C::tma_store, C::swap_ab ? lines_b<C> : lines_a<C>, C::swap_ab ? lines_a<C> : lines_b<C>, C::tile_scheduler,
          C::Arch::shared_bytes, C::packed, is_dual<C>>;
// Whether a skinny kernel tiles both sides of small products: GEMM's say so.
template <class C, class = void> struct tiles_both {
  static constexpr bool value = false;
};
template <class C> struct tiles_both<C, decltype(void(C::tiled))> {
  static constexpr bool value = C::tiled;
};
template <class C> using skinny_of =
    Skinny<typename C::A, (C::few_columns ? C::tile_m : C::tile_n) / 16, (C::few_columns ? C::tile_n : C::tile_m) / 8,
           C::warps, C::few_columns, C::few_columns ? C::b_rows : !C::a_rows, C::few_columns ? !C::a_rows : C::b_rows,
           is_dual<C>, tiles_both<C>::value>;

}  // namespace tw
