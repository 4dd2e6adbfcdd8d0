// GEMM in fp32, A row-major and B column-major: Columns dot products at a time, vectorised along k.
#pragma once
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/cpu/primitives/vec.h>
#include <tilewright/export.h>
#include <tilewright/gemm_args.h>
#include <tilewright/say.h>

namespace tw {

template <int Columns> struct RowDot : PlainKernel {
  static Answer broken(const tw_gemm_args *x) {
    if (!x) return {TW_BAD_ARGS, "args is null"};
    if (x->m < 0 || x->n < 0 || x->k < 0) return {TW_BAD_ARGS, "a size is negative"};
    if (x->n % Columns) return {TW_DIVISIBILITY, "n is no multiple of the columns"};
    if (x->batch != 1 || x->beta != 0) return {TW_LIMIT, "the kernel takes one matrix and no C"};
    return {};
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const tw_gemm_args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }

  static int launch(const void *args, void *, void *stream) {
    const tw_gemm_args &x = *static_cast<const tw_gemm_args *>(args);
    const int64_t team = team_size(stream), workers = team < x.m ? team : x.m;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t row = worker; row < x.m; row += workers)
        for (int64_t column = 0; column < x.n; column += Columns) dots(x, row, column);
    });
    return TW_OK;
  }

 private:
  static void dots(const tw_gemm_args &x, int64_t row, int64_t column) {
    const float *a = static_cast<const float *>(x.a) + row * x.a_stride;
    const float *b = static_cast<const float *>(x.b) + column * x.b_stride;
    vf accum[Columns] = {};
    int64_t k = 0;
    for (; k + lanes <= x.k; k += lanes)
      for (int j = 0; j < Columns; ++j) accum[j] += load_f(a + k) * load_f(b + j * x.b_stride + k);
    float *e = static_cast<float *>(x.e) + row * x.e_stride + column;
    for (int j = 0; j < Columns; ++j) {
      float sum = sum_lanes(accum[j]);
      for (int64_t rest = k; rest < x.k; ++rest) sum += a[rest] * b[j * x.b_stride + rest];
      e[j] = float(x.alpha) * sum;
    }
  }
};

}  // namespace tw
