// Gradients of weights that blocks accumulated split by split: the splits of a weight, added in an order that is always the same.
#pragma once
#include <stdint.h>
#include <tilewright/gpu/device.h>

namespace tw {

// Of few weights eight threads share the splits of one, so that few reads come one after another; of many each has one.
constexpr int64_t few_weights = 1 << 16;
constexpr int adders = 8, adding_threads = 256;

// Blocks of a kernel that adds; its shared memory is a float a thread.
inline unsigned adding_blocks(int64_t count) {
  const int64_t each = count < few_weights ? adding_threads / adders : adding_threads;
  return unsigned((count + each - 1) / each);
}

}  // namespace tw

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/device.h>
#include <tilewright/gpu/types.h>

namespace tw {

// Whether this thread has a sum, of which weight, and the sum.  place(at): where a weight lies in a split.
template <class Place> TW_GPU bool add_splits(const float *partial, long long count, long long apart, int parts,
                                              Place place, int &at, float &sum) {
  constexpr int each = adding_threads / adders;
  const bool shared = count < few_weights;
  const int who = shared ? threadIdx.x / each : 0, step = shared ? adders : 1;
  at = shared ? int(blockIdx.x) * each + int(threadIdx.x) % each : int(blockIdx.x) * adding_threads + int(threadIdx.x);
  sum = 0;
  const float *from = partial + (at < count ? place(at) : 0);
  wait_for_kernel_before();
  if (at < count)
#pragma unroll 8
    for (int part = who; part < parts; part += step) sum += from[part * apart];
  if (!shared) return at < count;
  float *shares = reinterpret_cast<float *>(dynamic_shared());
  shares[threadIdx.x] = sum;
  __syncthreads();
  if (who || at >= count) return false;
  sum = 0;
#pragma unroll
  for (int i = 0; i < adders; ++i) sum += shares[i * each + at % each];
  return true;
}
// Of weights that lie in a split as they are counted.
TW_GPU bool add_splits(const float *partial, long long count, int parts, int &at, float &sum) {
  return add_splits(partial, count, count, parts, [](int one) { return (long long)one; }, at, sum);
}

// Depthwise weights, [tap][channel] in a split.
template <class Config, class Args> TW_GPU void add_depthwise_splits(const Args &x) {
  int at;
  float sum;
  if (!add_splits(x.partial, x.taps * x.channels, x.parts, at, sum)) return;
  const int tap = at / x.channels, channel = at - tap * x.channels;
  round_to(sum, static_cast<typename Config::C *>(x.to)[channel * x.filter_apart + tap * x.tap_apart]);
}
// Weight `at`, counted by filter, tap and channel.
template <class Config, class Args> TW_GPU void store_weight(const Args &x, int at, float sum) {
  const int line = x.by_channels.quotient(at), filter = x.by_taps.quotient(line);
  round_to(sum, static_cast<typename Config::C *>(
                    x.to)[filter * x.filter_apart + (line - filter * int(x.by_taps.by)) * x.tap_apart +
                          (at - line * x.channels)]);
}

}  // namespace tw

// The kernel that adds the splits of `Symbol`, whose device function `add` takes its Args.
#define TW_DEVICE_ADD_SPLITS(Symbol, Args, add) \
  extern "C" __global__ void __launch_bounds__(tw::adding_threads) Symbol##_add(const __grid_constant__ Args x) { \
    add(x); \
  }
#endif
