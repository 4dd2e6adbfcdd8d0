// What every GEMM kernel refuses, whatever its backend.
#pragma once
#include <tilewright/gemm_args.h>
#include <tilewright/say.h>

namespace tw {

// Nothing to do; pipelines need not think of it.
inline bool empty(const tw_gemm_args &x) { return x.m == 0 || x.n == 0 || x.batch == 0; }

// Sizes and strides.  Config: a_rows, b_rows; `packed`: B is what `pack` made.
template <class Config> Answer broken_sizes(const tw_gemm_args *args, bool packed) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_gemm_args &x = *args;
  if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return {TW_BAD_ARGS, "a size is negative"};
  if (x.a_stride < (Config::a_rows ? x.k : x.m)) return {TW_BAD_ARGS, "the stride of A is shorter than its row"};
  if (!packed && x.b_stride < (Config::b_rows ? x.n : x.k))
    return {TW_BAD_ARGS, "the stride of B is shorter than its row"};
  if (x.e_stride < x.n) return {TW_BAD_ARGS, "the stride of E is shorter than its row"};
  return {};
}

// What is fused, for kernels that scale, add C and take any D.  Config: num_d.
template <class Config> Answer broken_fused(const tw_gemm_args &x) {
  if (x.beta != 0 && !x.c) return {TW_BAD_ARGS, "beta is not 0 but C is null"};
  for (int t = 0; t < Config::num_d; ++t) {
    if (!empty(x) && !x.d[t]) return {TW_BAD_ARGS, "a D tensor is null"};
    if (x.d_col_stride[t] != 0 && x.d_col_stride[t] != 1)
      return {TW_BAD_ARGS, "the column stride of a D tensor is neither 0 nor 1"};
  }
  return {};
}

}  // namespace tw
