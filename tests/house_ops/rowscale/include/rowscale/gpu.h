// A rowscale kernel on a GPU of either vendor: what a block does, and how many blocks there are.
#pragma once
#include <rowscale/check.h>
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

inline RowscaleRun rowscale_run(const tw_rowscale_args &x) {
  return {x.x,       static_cast<const float *>(x.scale), x.y, x.rows, x.columns, x.x_stride, x.scale_stride, x.y_stride,
          float(x.alpha)};
}
// Blocks walk over the rows, so that any number of rows is one launch.
inline unsigned rowscale_blocks(const tw_rowscale_args &x) { return x.rows < 65535 ? unsigned(x.rows) : 65535u; }

#ifdef TW_ON_GPU

// Config: T, activation, threads, items.
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
