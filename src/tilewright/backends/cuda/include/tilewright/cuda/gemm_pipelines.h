// The pipelines of a GEMM kernel, and the shape each makes of a Config (what and how, filled in by the generated file).
#pragma once
#include <tilewright/cuda/skinny_shape.h>
#include <tilewright/cuda/tma_ws_shape.h>
#include <tilewright/gpu/multistage_shape.h>

namespace tw {

enum class Pipeline { tma_ws, multistage, skinny, loops };

template <class C> using tma_ws_of =
    TmaWs<typename C::A, C::turned ? C::tile_n : C::tile_m, C::turned ? C::tile_m : C::tile_n, C::stages,
          C::turned ? C::cluster_n : C::cluster_m, C::turned ? C::cluster_m : C::cluster_n, C::pingpong, C::turned,
          C::tma_store, C::turned ? C::b_rows && !C::packed : !C::a_rows,
          C::turned ? !C::a_rows : C::b_rows && !C::packed, C::deal, C::packed>;
template <class C> using skinny_of = Skinny<typename C::A, (C::few_columns ? C::tile_m : C::tile_n) / 16,
                                            (C::few_columns ? C::tile_n : C::tile_m) / 8, C::warps, C::few_columns>;

}  // namespace tw
