// The floor: plain loops, any size, any stride, any dtype.  Slow, short, and easy to believe.
#pragma once
#include <tilewright/abi.h>

#include <tilewright/cpu/team.h>
#include <tilewright/cpu/types.h>

namespace tw {

enum class Epilogue { PassThrough, MultiDAdd, MultiDMultiply, Relu, Gelu, FastGelu, Silu, Sigmoid, Tanh };

template <class Config> struct GemmGeneric {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;

  static int launch(const tw_gemm_args &x, void *, void *stream) {
    parallel(stream, x.batch * x.m, [&](int64_t row) {
      int64_t z = row / x.m, i = row % x.m;
      auto *a = static_cast<const A *>(x.a) + z * x.a_batch_stride;
      auto *b = static_cast<const B *>(x.b) + z * x.b_batch_stride;
      auto *e = static_cast<C *>(x.e) + z * x.e_batch_stride + i * x.e_stride;
      for (int64_t j = 0; j < x.n; ++j) {
        accumulator<A> sum = 0;
        for (int64_t k = 0; k < x.k; ++k) {
          A p = a[Config::a_rows ? i * x.a_stride + k : k * x.a_stride + i];
          B q = b[Config::b_rows ? k * x.b_stride + j : j * x.b_stride + k];
          if constexpr (is_int<A>) sum += int32(p) * int32(q);
          else sum += to_float(p) * to_float(q);
        }
        double value = x.alpha * double(sum);
        if (x.beta != 0) value += x.beta * double(to_float(static_cast<const C *>(x.c)[z * x.c_batch_stride + i * x.c_stride + j]));
        if constexpr (is_int<C>) from_double(value, e + j);
        else from_float(float(value), e + j);
      }
    });
    return TW_OK;
  }
};

}  // namespace tw
