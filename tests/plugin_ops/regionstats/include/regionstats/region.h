// What both stages ask of a region.
#pragma once
#include <regionstats/args.h>
#include <tilewright/export.h>
#include <tilewright/say.h>

#include <tilewright/cpu/primitives/convert.h>

namespace tw {

struct Region {
  const tw_regionstats_region &x;

  TW_INLINE int64_t along(int d) const { return (x.size[d] + x.step[d] - 1) / x.step[d]; }
  // Positions that share a first index, of an entry, and of an entry before its length cuts some off.
  TW_INLINE int64_t each() const { return along(1) * along(2); }
  TW_INLINE int64_t all() const { return along(0) * each(); }
  TW_INLINE int64_t of(int64_t entry) const { return (x.lengths[entry] + x.step[0] - 1) / x.step[0] * each(); }
  TW_INLINE int64_t begin(int64_t chunk) const {
    const int64_t share = all() / x.chunks, more = all() % x.chunks;  // the first `more` chunks have one more
    return chunk * share + (chunk < more ? chunk : more);
  }

  TW_INLINE bool empty() const { return x.n == 0 || x.channels == 0; }
  // Lengths are data: they are looked at when the kernel runs, before anything is written.
  TW_INLINE bool lengths_fit() const {
    for (int64_t i = 0; i < x.n; ++i)
      if (x.lengths[i] < 0 || x.lengths[i] > x.size[0]) return false;
    return true;
  }
  // The first rule that is broken.
  Answer broken() const {
    if (x.n < 0 || x.channels < 0) return {TW_BAD_ARGS, "a size is negative"};
    if (x.chunks < 1) return {TW_BAD_ARGS, "there is no chunk"};
    for (int d = 0; d < REGIONSTATS_RANK; ++d)
      if (x.size[d] < 0 || x.step[d] < 1) return {TW_BAD_ARGS, "a spatial size is negative or a dilation below 1"};
    if (x.n && !x.lengths) return {TW_BAD_ARGS, "lengths is null"};
    return {};
  }
};

// The larger of two; NaN stays.
TW_INLINE vf peak_of(vf peak, vf x) { return select(vi(x > peak) | vi(x != x), x, peak); }
TW_INLINE float peak_of(float peak, float x) { return x > peak || x != x ? x : peak; }

}  // namespace tw
