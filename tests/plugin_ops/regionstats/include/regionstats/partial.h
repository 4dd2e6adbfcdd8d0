// Stage partial on the CPU: a task is a chunk of an entry.
#pragma once
#include <regionstats/region.h>

#include <tilewright/cpu/primitives/team.h>

namespace tw {

// Config: T, weight, shift, vectors (0: plain loops).
template <class Config> struct Partial : PlainKernel {
  using T = typename Config::T;
  using Args = tw_regionstats_partial_args;

  // The address of channel `c` at the positions from `begin` on, one after another.
  struct Walk {
    const Args &x;
    const T *base;
    int64_t across, along, i, j, k;
    Walk(const Args &args, int64_t entry, int64_t begin, int64_t c)
        : x(args), base(static_cast<const T *>(x.x) + entry * x.x_stride + c) {
      const Region region{x.region};
      across = region.along(2) ? region.along(2) : 1, along = region.along(1) ? region.along(1) : 1;
      k = begin % across, j = begin / across % along, i = begin / (across * along);
    }
    TW_INLINE const T *at() const {
      return base + i * x.region.step[0] * x.x_spatial_stride[0] + j * x.region.step[1] * x.x_spatial_stride[1] +
             k * x.region.step[2] * x.x_spatial_stride[2];
    }
    TW_INLINE void next() {
      if (++k < across) return;
      k = 0;
      if (++j < along) return;
      j = 0, ++i;
    }
  };

  // V vectors of channels from `c` on; `left` channels are there.
  template <int V> static void channels(const Args &x, int64_t entry, int64_t chunk, int64_t c, int64_t left) {
    const Region region{x.region};
    const int64_t active = region.of(entry), begin = region.begin(chunk), last = region.begin(chunk + 1);
    const int64_t end = last < active ? last : active;
    vf sums[V], peaks[V], weight[V], shift[V];
    for (int v = 0; v < V; ++v) {
      sums[v] = vf{}, peaks[v] = splat(-__builtin_inff());
      weight[v] = splat(float(x.scale)), shift[v] = vf{};
      if (v * lanes >= left) continue;
      if constexpr (Config::weight)
        weight[v] *= load_as_float(static_cast<const float *>(x.weight) + c + v * lanes, left - v * lanes);
      if constexpr (Config::shift)
        shift[v] = load_as_float(static_cast<const float *>(x.shift) + c + v * lanes, left - v * lanes);
    }
    Walk walk(x, entry, begin, c);
    for (int64_t p = begin; p < end; ++p, walk.next()) {
      const T *at = walk.at();
      for (int v = 0; v < V; ++v) {
        if (v * lanes >= left) break;
        vf value = load_as_float(at + v * lanes, left - v * lanes) * weight[v];
        if constexpr (Config::shift) value += shift[v];
        sums[v] += value, peaks[v] = peak_of(peaks[v], value);
      }
    }
    const int64_t to = (entry * x.region.chunks + chunk) * x.region.channels + c;
    for (int v = 0; v < V && v * lanes < left; ++v) {
      store_from_float(static_cast<float *>(x.sums) + to + v * lanes, sums[v], left - v * lanes);
      store_from_float(static_cast<float *>(x.peaks) + to + v * lanes, peaks[v], left - v * lanes);
    }
  }

  static void channel(const Args &x, int64_t entry, int64_t chunk, int64_t c) {
    const Region region{x.region};
    const int64_t active = region.of(entry), begin = region.begin(chunk), last = region.begin(chunk + 1);
    float sum = 0, peak = -__builtin_inff(), weight = float(x.scale), shift = 0;
    if constexpr (Config::weight) weight *= static_cast<const float *>(x.weight)[c];
    if constexpr (Config::shift) shift = static_cast<const float *>(x.shift)[c];
    Walk walk(x, entry, begin, c);
    for (int64_t p = begin; p < (last < active ? last : active); ++p, walk.next()) {
      const float value = to_float(*walk.at()) * weight + shift;
      sum += value, peak = peak_of(peak, value);
    }
    const int64_t to = (entry * x.region.chunks + chunk) * x.region.channels + c;
    static_cast<float *>(x.sums)[to] = sum, static_cast<float *>(x.peaks)[to] = peak;
  }

  static Answer broken(const Args *x) {
    if (!x) return {TW_BAD_ARGS, "args is null"};
    const Answer common = Region{x->region}.broken();
    if (common.code || !x->region.channels) return common;
    if (Config::weight && !x->weight) return {TW_BAD_ARGS, "weight is null"};
    if (Config::shift && !x->shift) return {TW_BAD_ARGS, "shift is null"};
    return {};
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
    parallel(stream, x.region.n * x.region.chunks, [&](int64_t task) {
      const int64_t entry = task / x.region.chunks, chunk = task % x.region.chunks;
      if constexpr (Config::vectors == 0) {
        for (int64_t c = 0; c < x.region.channels; ++c) channel(x, entry, chunk, c);
      } else {
        for (int64_t c = 0; c < x.region.channels; c += Config::vectors * lanes)
          channels<Config::vectors>(x, entry, chunk, c, x.region.channels - c);
      }
    });
    return TW_OK;
  }
};

}  // namespace tw
