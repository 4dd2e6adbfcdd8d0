// The epilogue of a row of accumulators: alpha and beta, the D tensors, the activation, the
// output type.  Every pipeline ends here.
#pragma once
#include <tilewright/gemm_args.h>

#include <tilewright/cpu/primitives/activation.h>
#include <tilewright/cpu/primitives/convert.h>

namespace tw {

template <class Config> struct Finish {
  using C = typename Config::C;
  using D = typename Config::D;
  using Sum = accumulator<typename Config::A>;  // float or int32
  static constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
  static constexpr bool fused = Config::epilogue != Epilogue::PassThrough || Config::num_d > 0;

  // Accumulators that are the result already, bit for bit, may be written straight to E.
  static TW_INLINE bool plain(const tw_gemm_args &x) {
    return same<Sum, C>::value && !fused && x.alpha == 1 && x.beta == 0;
  }

  // The same for results that are narrower: only rounded.
  static constexpr bool may_round = rounds_in_registers<C> && same<Sum, float>::value && !fused;
  static TW_INLINE bool only_rounded(const tw_gemm_args &x) { return may_round && x.alpha == 1 && x.beta == 0; }

  // Where row i, column j of the batch's matrices begin.
  struct Row {
    const C *c;
    C *e;
    const D *d[TW_MAX_D];
  };
  static TW_INLINE Row row(const tw_gemm_args &x, int64_t z, int64_t i, int64_t j) {
    Row r{};
    r.e = static_cast<C *>(x.e) + z * x.e_batch_stride + i * x.e_stride + j;
    if (x.beta != 0) r.c = static_cast<const C *>(x.c) + z * x.c_batch_stride + i * x.c_stride + j;
    for (int t = 0; t < Config::num_d; ++t)
      r.d[t] = static_cast<const D *>(x.d[t]) + z * x.d_batch_stride[t] + i * x.d_row_stride[t] + j * x.d_col_stride[t];
    return r;
  }

  // `count` accumulators of one row to E.
  static TW_INLINE void store(const tw_gemm_args &x, const Row &r, const Sum *accum, int64_t count) {
    if constexpr (is_int<C>) {
      if (!fused && x.alpha == 1 && x.beta == 0) {
        for (int64_t j = 0; j < count; ++j) {
          int32_t s = accum[j];
          if constexpr (same<C, int8>::value) s = s < -128 ? -128 : s > 127 ? 127 : s;
          r.e[j] = C(s);
        }
        return;
      }
      for (int64_t j = 0; j < count; ++j) {
        double value = x.alpha * double(accum[j]);
        if (x.beta != 0) value += x.beta * double(r.c[j]);
        for (int t = 0; t < Config::num_d; ++t) {
          double d = double(r.d[t][j * x.d_col_stride[t]]);
          if constexpr (gated<Config::epilogue>) value = activate_one<gate_of<Config::epilogue>>(value) * d;
          else value = multiplies ? value * d : value + d;
        }
        from_double(activate_one<Config::epilogue>(value), r.e + j);
      }
    } else {
      vf alpha = splat(float(x.alpha)), beta = splat(float(x.beta));
      for (int64_t j = 0; j < count; j += lanes) {
        int64_t left = count - j;
        vf value = alpha * load_as_float(accum + j);  // accumulators are padded to whole vectors
        if (x.beta != 0) value += beta * load_as_float(r.c + j, left);
        for (int t = 0; t < Config::num_d; ++t) {
          vf d = x.d_col_stride[t] ? load_as_float(r.d[t] + j, left) : splat(to_float(*r.d[t]));
          if constexpr (gated<Config::epilogue>) value = activate<gate_of<Config::epilogue>>(value) * d;
          else value = multiplies ? value * d : value + d;
        }
        store_from_float(r.e + j, activate<Config::epilogue>(value), left);
      }
    }
  }
};

}  // namespace tw
