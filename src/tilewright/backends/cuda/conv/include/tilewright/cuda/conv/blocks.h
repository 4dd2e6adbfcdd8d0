// Groups of few channels, several of them as one: their filters lie along the diagonal of a larger filter that is zero
// elsewhere.  (More is multiplied than has to be, by matrix units that would idle otherwise.)
//
// `spread`: w into such filters.  `pick`: the blocks of the diagonal out of a gradient of such filters, whose columns may
// be rounded up besides.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/types.h>
#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/device.h>
#endif

namespace tw {

struct BlocksArgs {
  const void *from;
  void *to;
  Divider merged, filters, channels, taps;  // groups in one, and of one group
  Divider wide;                             // channels of a tap of a large filter, rounded up
  long long count;                          // elements of `to`
  long long filter_apart, tap_apart;        // of the small filters, in elements
};
struct Blocks {
  static constexpr int threads = 256;
};

#ifdef TW_ON_GPU

template <class T> TW_GPU void spread_blocks(const BlocksArgs &x, long long thread, long long threads) {
  const T *from = static_cast<const T *>(x.from);
  T *to = static_cast<T *>(x.to);
  for (long long at = thread; at < x.count; at += threads) {
    const int column = int(at), tap_at = x.wide.quotient(column), c = column - tap_at * int(x.wide.by);
    const int filter = x.taps.quotient(tap_at), tap = tap_at - filter * int(x.taps.by);
    const int group = x.filters.quotient(filter), place = group - x.merged.quotient(group) * int(x.merged.by);
    const int inside = c - place * int(x.channels.by);
    to[at] =
        inside >= 0 && inside < int(x.channels.by) ? from[filter * x.filter_apart + tap * x.tap_apart + inside] : T{};
  }
}

template <class T> TW_GPU void pick_blocks(const BlocksArgs &x, long long thread, long long threads) {
  const T *from = static_cast<const T *>(x.from);
  T *to = static_cast<T *>(x.to);
  for (long long at = thread; at < x.count; at += threads) {
    const int column = int(at), tap_at = x.channels.quotient(column), c = column - tap_at * int(x.channels.by);
    const int filter = x.taps.quotient(tap_at), tap = tap_at - filter * int(x.taps.by);
    const int group = x.filters.quotient(filter), place = group - x.merged.quotient(group) * int(x.merged.by);
    to[filter * x.filter_apart + tap * x.tap_apart + c] =
        from[(long long)tap_at * x.wide.by + place * int(x.channels.by) + c];
  }
}

template <class Config> TW_GPU void move_blocks(const BlocksArgs &x, long long thread, long long threads) {
  let_next_kernel_in();
  wait_for_kernel_before();
  if constexpr (Config::variant == ConvVariant::backward_weight) pick_blocks<typename Config::C>(x, thread, threads);
  else spread_blocks<typename Config::A>(x, thread, threads);
}

#endif
}  // namespace tw

// The kernel that moves them, beside a convolution's own: Symbol_blocks.
#define TW_DEVICE_CONV_BLOCKS(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::Blocks::threads) \
      Symbol##_blocks(const __grid_constant__ tw::BlocksArgs x) { \
    tw::move_blocks<Config>(x, blockIdx.x * (long long)tw::Blocks::threads + threadIdx.x, \
                            gridDim.x * (long long)tw::Blocks::threads); \
  }
