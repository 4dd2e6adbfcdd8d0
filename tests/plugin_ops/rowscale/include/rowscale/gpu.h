// What a block of a rowscale kernel does, on a GPU of either vendor.
#pragma once
#include <tilewright/gpu/activation.h>

namespace tw {

// What a launch tells its blocks.
struct RowscaleRun {
  const void *x;
  const float *scale;
  void *y;
  long long rows, columns, x_stride, scale_stride, y_stride;
  float alpha;
};

#ifdef TW_ON_GPU

// Config: T, activation, threads, items.  Blocks traverse the rows, so that any number of rows is one launch.
template <class Config> TW_GPU void rowscale(const RowscaleRun &x) {
  using T = typename Config::T;
  for (long long i = blockIdx.x; i < x.rows; i += gridDim.x) {
    const T *from = static_cast<const T *>(x.x) + i * x.x_stride;
    T *to = static_cast<T *>(x.y) + i * x.y_stride;
    const float factor = x.alpha * x.scale[i * x.scale_stride];
    for (long long j0 = threadIdx.x; j0 < x.columns; j0 += Config::threads * Config::items) {
#pragma unroll
      for (int u = 0; u < Config::items; ++u) {
        const long long j = j0 + u * Config::threads;
        if (j < x.columns) round_to(activate<Config::activation>(to_float(from[j]) * factor), to[j]);
      }
    }
  }
}

#endif
}  // namespace tw
