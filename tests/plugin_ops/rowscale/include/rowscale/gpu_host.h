// What the host's halves for both GPU vendors share.
#pragma once
#include <rowscale/gpu.h>
#include <rowscale/host.h>
#include <tilewright/export.h>

namespace tw {

struct RowscaleOnGpu : PlainKernel {
  static int check(const void *args, char *why, size_t bytes) { return rowscale_check(args, 1, why, bytes); }
  static int64_t workspace(const void *, int64_t) { return 0; }

  static bool empty(const tw_rowscale_args &x) { return !x.rows || !x.columns; }
  static unsigned blocks(const tw_rowscale_args &x) { return x.rows < 65535 ? unsigned(x.rows) : 65535u; }
  static RowscaleRun predicted(const tw_rowscale_args &x) {
    return {x.x,
            static_cast<const float *>(x.scale),
            x.y,
            x.rows,
            x.columns,
            x.x_stride,
            x.scale_stride,
            x.y_stride,
            float(x.alpha)};
  }
};

}  // namespace tw
