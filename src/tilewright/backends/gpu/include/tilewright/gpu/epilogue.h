// What happens to a sum on its way out: alpha, beta and C, the D tensors, the activation, the output
// type.  A pipeline hands over (sum, z, row, column) from wherever it keeps its sums.
#pragma once
#include <tilewright/gpu/activation.h>

namespace tw {

// Host and device lay this out alike; a D that is a row has a row stride of 0.
struct EpilogueArgs {
  double alpha, beta;
  const void *c;
  const void *d[2];
  long long c_stride, c_batch;
  long long d_row[2], d_column[2], d_batch[2];
};

#ifdef TW_ON_GPU

template <class T> struct is_integer {
  static constexpr bool value = false;
};
template <> struct is_integer<int8_t> {
  static constexpr bool value = true;
};
template <> struct is_integer<int32_t> {
  static constexpr bool value = true;
};

// Config: C, D, epilogue, num_d.
template <class Config> struct Finish {
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr bool exact = is_integer<C>::value;  // integers go through double, floats through float
  static constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
  static constexpr bool fused = Config::epilogue != Epilogue::PassThrough || Config::num_d > 0;

  const EpilogueArgs &x;
  TW_GPU explicit Finish(const EpilogueArgs &args) : x(args) {}

  // Whether all there is to do is to multiply by alpha.
  TW_GPU bool only_scales() const { return !fused && x.beta == 0; }

  template <class Real, class Sum> TW_GPU Real value(Sum sum, long long z, long long row, long long column) const {
    Real v = Real(x.alpha) * Real(sum);
    if (x.beta != 0)
      v += Real(x.beta) * real<Real>(static_cast<const C *>(x.c)[z * x.c_batch + row * x.c_stride + column]);
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      Real d = real<Real>(static_cast<const D *>(x.d[t])[z * x.d_batch[t] + row * x.d_row[t] + column * x.d_column[t]]);
      v = multiplies ? v * d : v + d;
    }
    return activate<Config::epilogue>(v);
  }
  // The element of E for a sum.
  template <class Sum> TW_GPU C operator()(Sum sum, long long z, long long row, long long column) const {
    C result;
    if constexpr (exact) round_to(value<double>(sum, z, row, column), result);
    else round_to(value<float>(sum, z, row, column), result);
    return result;
  }

 private:
  template <class Real, class T> static TW_GPU Real real(T x) {
    if constexpr (exact) return Real(x);
    else return Real(to_float(x));
  }
};

#endif
}  // namespace tw
