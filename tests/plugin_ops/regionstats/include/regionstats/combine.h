// Stage combine on the CPU: a task is some entries.
#pragma once
#include <regionstats/region.h>

#include <tilewright/cpu/primitives/team.h>

namespace tw {

// Config: T, entries a task (0: plain loops).
template <class Config> struct Combine : PlainKernel {
  using T = typename Config::T;
  using Args = tw_regionstats_combine_args;

  // Up to a vector of channels from `c` on.
  static TW_INLINE void channels(const Args &x, int64_t entry, int64_t c, int64_t left) {
    const int64_t count = Region{x.region}.of(entry), channels = x.region.channels;
    const float *sums = static_cast<const float *>(x.sums) + entry * x.region.chunks * channels + c;
    const float *peaks = static_cast<const float *>(x.peaks) + entry * x.region.chunks * channels + c;
    vf sum{}, peak = splat(-__builtin_inff());
    for (int64_t i = 0; i < x.region.chunks; ++i) {
      sum += load_as_float(sums + i * channels, left);
      peak = peak_of(peak, load_as_float(peaks + i * channels, left));
    }
    sum = count ? sum / splat(float(count)) : vf{};
    store_from_float(static_cast<float *>(x.mean) + entry * x.mean_stride + c, sum, left);
    store_from_float(static_cast<T *>(x.peak) + entry * x.peak_stride + c, peak, left);
  }

  static void channel(const Args &x, int64_t entry, int64_t c) {
    const int64_t count = Region{x.region}.of(entry);
    float sum = 0, peak = -__builtin_inff();
    for (int64_t i = 0; i < x.region.chunks; ++i) {
      const int64_t from = (entry * x.region.chunks + i) * x.region.channels + c;
      sum += static_cast<const float *>(x.sums)[from];
      peak = peak_of(peak, static_cast<const float *>(x.peaks)[from]);
    }
    static_cast<float *>(x.mean)[entry * x.mean_stride + c] = count ? sum / float(count) : 0;
    from_float(peak, static_cast<T *>(x.peak) + entry * x.peak_stride + c);
  }

  static Answer broken(const Args *x) {
    if (!x) return {TW_BAD_ARGS, "args is null"};
    if (x->mean_stride < x->region.channels || x->peak_stride < x->region.channels)
      return {TW_BAD_ARGS, "the stride of a result is shorter than its row"};
    return Region{x->region}.broken();
  }
  static int check(const void *args, char *why, size_t bytes) {
    return say(broken(static_cast<const Args *>(args)), why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }
  static int launch(const void *args, void *, void *stream) {
    auto &x = *static_cast<const Args *>(args);
    const Region region{x.region};
    if (region.empty()) return TW_OK;
    if (!region.lengths_fit()) return TW_DATA_IN(Args, region.lengths);
    constexpr int64_t each = Config::entries ? Config::entries : 1;
    parallel(stream, (x.region.n + each - 1) / each, [&](int64_t task) {
      for (int64_t entry = task * each; entry < x.region.n && entry < (task + 1) * each; ++entry) {
        if constexpr (Config::entries == 0) {
          for (int64_t c = 0; c < x.region.channels; ++c) channel(x, entry, c);
        } else {
          for (int64_t c = 0; c < x.region.channels; c += lanes) channels(x, entry, c, x.region.channels - c);
        }
      }
    });
    return TW_OK;
  }
};

}  // namespace tw
