// What the host hands to GEMM kernels that are the same for every vendor.
#pragma once
#include <tilewright/gemm_args.h>
#include <tilewright/gpu/gemm_loops.h>

namespace tw {

inline EpilogueArgs epilogue_args(const tw_gemm_args &x) {
  static_assert(TW_MAX_D == most_d, "a kernel takes as many D tensors as a call has");
  EpilogueArgs f{x.alpha, x.beta, x.c, {}, x.c_stride, x.c_batch_stride, {}, {}, {}};
  for (int t = 0; t < TW_MAX_D; ++t)
    f.d[t] = x.d[t], f.d_row[t] = x.d_row_stride[t], f.d_column[t] = x.d_col_stride[t],
    f.d_batch[t] = x.d_batch_stride[t];
  return f;
}

inline LoopsArgs loops_args(const tw_gemm_args &x) {
  LoopsArgs t{};
  t.m = x.m, t.n = x.n, t.k = x.k, t.batch = x.batch;
  t.tiles_m = (x.m + Loops::tile - 1) / Loops::tile, t.tiles_n = (x.n + Loops::tile - 1) / Loops::tile;
  t.a = x.a, t.b = x.b, t.b_up = x.b_up, t.e = x.e;
  t.a_stride = x.a_stride, t.b_stride = x.b_stride, t.e_stride = x.e_stride;
  t.a_batch = x.a_batch_stride, t.b_batch = x.b_batch_stride, t.e_batch = x.e_batch_stride;
  t.finish = epilogue_args(x);
  return t;
}

}  // namespace tw
