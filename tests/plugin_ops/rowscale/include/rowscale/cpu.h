// A rowscale kernel on the CPU: a Config (filled in by the generated file) behind the C ABI.
#pragma once
#include <rowscale/host.h>
#include <tilewright/export.h>

#include <tilewright/cpu/primitives/activation.h>
#include <tilewright/cpu/primitives/convert.h>
#include <tilewright/cpu/primitives/team.h>

namespace tw {

// Config: T, activation, unroll (0: plain loops), rows a task, edge.
template <class Config> struct Rowscale : PlainKernel {
  using T = typename Config::T;
  static constexpr int64_t step = Config::unroll * lanes;
  static constexpr int64_t smallest_share = 1 << 14;  // elements below which no other thread is woken

  static TW_INLINE vf one(vf x, vf factor) { return activate<Config::activation>(x * factor); }

  static void row(const tw_rowscale_args &x, int64_t i) {
    const T *from = static_cast<const T *>(x.x) + i * x.x_stride;
    T *to = static_cast<T *>(x.y) + i * x.y_stride;
    const vf factor = splat(float(x.alpha) * static_cast<const float *>(x.scale)[i * x.scale_stride]);
    int64_t j = 0;
    if constexpr (Config::unroll == 0) {
      for (; j < x.columns; ++j) from_float(one(splat(to_float(from[j])), factor)[0], to + j);
    } else {
      for (; j + step <= x.columns; j += step) {
#pragma GCC unroll 8
        for (int u = 0; u < Config::unroll; ++u)
          store_from_float(to + j + u * lanes, one(load_as_float(from + j + u * lanes), factor));
      }
      if constexpr (Config::edge) {
        for (; j < x.columns; j += lanes)
          store_from_float(to + j, one(load_as_float(from + j, x.columns - j), factor), x.columns - j);
      }
    }
  }

  static int check(const void *args, char *why, size_t bytes) {
    return rowscale_check(args, Config::edge ? 1 : step, why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    auto &x = *static_cast<const tw_rowscale_args *>(args);
    const int64_t tasks = (x.rows + Config::rows - 1) / Config::rows;
    parallel(x.rows * x.columns < smallest_share ? nullptr : stream, tasks, [&](int64_t task) {
      const int64_t end = (task + 1) * Config::rows < x.rows ? (task + 1) * Config::rows : x.rows;
      for (int64_t i = task * Config::rows; i < end; ++i) row(x, i);
    });
    return TW_OK;
  }
};

}  // namespace tw
