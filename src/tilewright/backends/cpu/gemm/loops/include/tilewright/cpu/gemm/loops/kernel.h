// The floor: plain loops, any size, any stride, any dtype.  Slow, short, and easy to believe.
#pragma once
#include <tilewright/cpu/epilogues/epilogue.h>
#include <tilewright/cpu/primitives/team.h>

namespace tw {

template <class Config> struct GemmLoops {
  using A = typename Config::A;
  using B = typename Config::B;
  using End = Finish<Config>;
  using Sum = typename End::Sum;

  static int64_t workspace(const tw_gemm_args &, int64_t) { return 0; }

  static int launch(const tw_gemm_args &x, void *, void *stream) {
    int64_t rows = x.batch * x.m, workers = team_size(stream) < rows ? team_size(stream) : rows;
    parallel(stream, workers, [&](int64_t worker) {
      for (int64_t row = worker; row < rows; row += workers)
        for (int64_t j = 0; j < x.n; j += lanes) some_of_a_row(x, row / x.m, row % x.m, j);
    });
    return TW_OK;
  }

 private:
  static void some_of_a_row(const tw_gemm_args &x, int64_t z, int64_t i, int64_t j0) {
    const A *a = static_cast<const A *>(x.a) + z * x.a_batch_stride;
    const B *b = static_cast<const B *>(x.b) + z * x.b_batch_stride;
    int64_t count = x.n - j0 < lanes ? x.n - j0 : lanes;
    Sum accum[lanes] = {};
    for (int64_t t = 0; t < count; ++t) {
      int64_t j = j0 + t;
      for (int64_t k = 0; k < x.k; ++k) {
        A p = a[Config::a_rows ? i * x.a_stride + k : k * x.a_stride + i];
        B q = b[Config::b_rows ? k * x.b_stride + j : j * x.b_stride + k];
        if constexpr (is_int<A>) accum[t] = Sum(uint32_t(accum[t]) + uint32_t(int32_t(p) * int32_t(q)));
        else accum[t] += to_float(p) * to_float(q);
      }
    }
    End::store(x, End::row(x, z, i, j0), accum, count);
  }
};

}  // namespace tw
