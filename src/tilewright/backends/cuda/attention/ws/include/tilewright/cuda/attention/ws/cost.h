// ws, decode, decode_stream_k: TMA feeds wgmma, warp-specialized and persistent.  What it takes.
#pragma once
#include <tilewright/cuda/attention/cost.h>
#include <tilewright/cuda/attention/ws/constants.h>
#include <tilewright/cuda/attention/ws/limits.h>

namespace tw {
namespace selection {
namespace cuda_attention {
namespace ws {

constexpr double kStreamed = 0.87;   // of what an item takes, where items are streamed
constexpr double kTwoStages = 1.06;  // how much longer an iteration takes that has only one tile to come
constexpr double kExposed = 0.33;    // of the time memory takes, beside products
constexpr int64_t kShareThreads = 128, kLargeHead = 128;

inline int64_t tile_m(const Schedule &s) { return kRows * s.warpgroups; }
inline bool one_warpgroup_packs(const Schedule &s) { return s.packs && s.warpgroups == 1; }

// Trips to memory and back to leave a piece, to count it, and for the last to add up so many of an item, as
// cuda/attention/stream_k/kernel.h goes about it.
inline double meeting_trips(const AttentionProblem &p, int64_t group, double pieces) {
  const double quads = double(p.seqlen_q * group * p.head_dim_v) / 4;
  const bool large = p.head_dim_v > kLargeHead, few = quads <= double(kShareThreads);
  const int64_t columns = few ? 1 : large ? 2 : 4, at_once = !few ? 4 : large ? 8 : 16;
  return 2 + ceil(quads / double(kShareThreads * columns)) * ceil(pieces / double(at_once));
}

// TMA boxes that a tile of keys and values comes by, of as many rows as divide pages and tiles.
inline int64_t boxes(const Schedule &s, const AttentionProblem &p) {
  if (p.pages == kNoPages) return 0;
  const int64_t pieces = s.tile_n / greatest_divisor(s.tile_n, larger(1, p.page_size));
  return pieces * (ceil_div(s.head_dim, 64) + ceil_div(s.head_dim_v, 64));
}

// One tile of rows and one of keys, while so many blocks are at work.
inline double step_seconds(const Schedule &s, const Rates &r, int64_t busy) {
  const double scored = s.scored ? kScored : 1.0, together = double(s.ctas_per_sm);
  const int64_t scores = tile_m(s) * s.tile_n, heads = s.head_dim + s.head_dim_v;
  const double shared = together * (double(scores * heads) / r.unit_macs + double(scores) * r.hidden_score * scored);
  const double alone = double(s.tile_n) * r.key * scored + double(64 * s.tile_n * s.head_dim) / r.unit_macs;
  const int64_t stage = s.tile_n * heads * s.size_kv;
  double fetch = double(stage * s.ctas_per_sm) / r.unit_bytes;
  if (one_warpgroup_packs(s))  // keys that nobody else reads come from memory
    fetch = slower(busy > s.ctas_per_sm ? fetch : 0.0, double(stage * busy) / r.memory);
  const double pace = s.stages == 2 && s.warpgroups > 1 ? kTwoStages : 1.0;
  return slower((slower(shared, alone) + r.step) * pace, fetch);
}

inline double seconds_of_stream_k(const Query &x, const Traversal &t, int64_t places, double step, double item) {
  const double items = double(t.items), tiles = items * t.steps;
  const double blocks = faster(double(places), slower(1.0, tiles / least_tiles));
  const double pieces = slower(1.0, blocks / items);
  return tiles / blocks * step + slower(1.0, items / blocks) * item +
         x.rate.trip * meeting_trips(x.a.p, x.a.group, pieces);
}

inline double seconds(const Schedule &s, const Query &x) {
  const AttentionProblem &p = x.a.p;
  const Rates &r = x.rate;
  const int64_t places = x.arch.compute_units * s.ctas_per_sm, group = s.packs ? x.a.group : 1;
  Traversal t = traversal(x.a, tile_m(s), s.tile_n, group, tile_m(s));
  if (s.warpgroups > 1 && (s.q_stages == 1 || t.steps > short_stream))
    t = traversal(x.a, tile_m(s), s.tile_n, group, kRows);
  double item = r.item * (s.q_stages > 1 ? kStreamed : 1.0);
  if (s.packs) item += s.warpgroups == 1 ? r.carry : faster(r.most_carried, r.carried * double(p.head_dim));
  const int64_t busy = t.items < places ? int64_t(t.items) : places;
  const double step = step_seconds(s, r, busy) + r.box * double(boxes(s, p));
  double taken = t.waves(places) * (t.steps * step + item);
  if (s.stream_k) taken = seconds_of_stream_k(x, t, places, step, item);
  const double exposed = one_warpgroup_packs(s) ? 0.0 : kExposed;  // whose iterations are as long as memory takes
  const double moved = double(x.a.moved);
  const double whole = r.start + slower(taken + exposed * moved / r.memory, moved / r.memory);
  return s.stream_k ? whole : of_uneven_sequences(x.a, whole);
}

}  // namespace ws
}  // namespace cuda_attention
}  // namespace selection
}  // namespace tw

// The export of a library of attention kernels: what `gpu/attention.py` calls for kernels that distribute all keys themselves.
#define TW_SELECT_MEETING_TRIPS \
  TW_SELECT_API void tw_select_meeting_trips(const tw::selection::AttentionProblem *problem, double pieces, \
                                             double *trips) { \
    const tw::selection::Attention a(*problem); \
    *trips = tw::selection::cuda_attention::ws::meeting_trips(*problem, a.group, pieces); \
  }
