// What becomes of a sum of GEMM: alpha, beta and C, the D tensors, the activation, one rounding.  Nothing here depends on
// CK Tile.
#pragma once
#include <tilewright/hip/store_modes.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

// `width` neighbours of a row of E, whole where the row does not end before.
template <class Config> struct Finished : private StoreMode<Config> {
  using Base = StoreMode<Config>;
  using typename Base::C;
  using typename Base::D;
  using typename Base::Real;
  using typename Base::Sum;

  const Launch &x;
  TW_GPU explicit Finished(const Launch &launch) : x(launch) {}

  template <int width> TW_GPU void operator()(const Sum (&accum)[width], int64_t z, int64_t row, int64_t column) const {
    if (column >= x.n) return;
    const int count = x.n - column < width ? int(x.n - column) : width;
    Real value[width], other[width];
    const Real alpha = Real(x.alpha), beta = Real(x.beta);
#pragma unroll
    for (int j = 0; j < width; ++j) value[j] = alpha * Real(accum[j]);
    if (x.beta != 0) {
      Base::load(other, static_cast<const C *>(x.c) + z * x.c_batch + row * x.c_stride + column, 1, x.wide & wide_c,
                 count);
#pragma unroll
      for (int j = 0; j < width; ++j) value[j] += beta * other[j];
    }
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      Base::load(
          other,
          static_cast<const D *>(x.d[t]) + z * x.d_batch[t] + row * x.d_stride[t] + column * x.d_column_stride[t],
          x.d_column_stride[t], x.wide & (wide_d << t), count);
      Base::combine(value, other);
    }
    Base::store(static_cast<C *>(x.e) + z * x.e_batch + row * x.e_stride + column, value, x.wide & wide_e, count);
  }
};

}  // namespace tw::hip
#endif
