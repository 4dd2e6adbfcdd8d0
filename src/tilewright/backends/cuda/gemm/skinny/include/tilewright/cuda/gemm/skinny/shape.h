// The numbers of the skinny pipeline, for the host that launches and the device that runs.
#pragma once
#include <tilewright/cuda/gemm/skinny/memory.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct SkinnyArgs {
  const void *a, *b;  // a: m x k (the few), b: n x k (the many); k or lines contiguous, 16-byte aligned
  const void *b_up;   // of a dual kernel: the second B
  void *e;
  int m, n, k, batch;
  long long a_stride, b_stride, e_stride, a_batch, b_batch, e_batch;
  EpilogueArgs finish;
};

// RowTiles * 16 rows of B and TokenTiles * 8 rows of A a block, k split over Warps.  Swapped: the few
// are columns of the result, so E is written the other way round.  FewLines, ManyLines: not their k is contiguous.
// Tiled: any number of such rows of A, a block for each.
// Dual: of the 16 rows of a tile the upper eight are of B, the lower eight the same rows of B_up.
template <class In_, int RowTiles_, int TokenTiles_, int Warps_, bool Swapped_, bool FewLines_, bool ManyLines_,
          bool Dual_ = false, bool Tiled_ = false>
struct Skinny {
  using In = In_;
  static constexpr int RowTiles = RowTiles_, TokenTiles = TokenTiles_, Warps = Warps_, threads = Warps * 32;
  static constexpr int rows = RowTiles * 16, tokens = TokenTiles * 8;
  static constexpr int shared_bytes = skinny_shared_bytes(Warps, rows, tokens);
  static constexpr bool Swapped = Swapped_, FewLines = FewLines_, ManyLines = ManyLines_, Dual = Dual_, Tiled = Tiled_;
  static constexpr int many = Dual ? rows / 2 : rows;  // results of a block along the many
  static_assert(!Dual || (!Swapped && !ManyLines), "two B are read along k");
};

}  // namespace tw
