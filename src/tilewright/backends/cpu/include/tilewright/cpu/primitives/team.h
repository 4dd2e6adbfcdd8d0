// Running a body on the caller's team of threads.
#pragma once
#include <tilewright/abi.h>

#include <tilewright/cpu/primitives/types.h>

namespace tw {

TW_INLINE int64_t team_size(const void *stream) {
  return stream ? static_cast<const tw_host_team *>(stream)->threads : 1;
}

// body(index) for every index below count; with no team, or one index, on this thread.
template <class Body> TW_INLINE void parallel(void *stream, int64_t count, const Body &body) {
  auto *team = static_cast<tw_host_team *>(stream);
  if (!team || team->threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  team->run(
      team, count, [](void *context, int64_t index, int64_t) { (*static_cast<const Body *>(context))(index); },
      const_cast<Body *>(&body));
}

// Shares that so much work is cut into for a team: a few for each thread, so that one that comes late leaves the others
// more to do, but none that is hardly worth the taking.
TW_INLINE int64_t shares(double work, double smallest_share, int64_t threads) {
  constexpr int64_t most_each = 4;
  if (threads <= 1) return 1;
  const double each = work / double(threads) / (2 * smallest_share);
  return threads * (each >= double(most_each) ? most_each : each < 1 ? 1 : int64_t(each));
}

// body(worker, item) for every item below `items`, on up to `workers` threads, whose numbers differ.  Each begins with a
// stretch of its own, the same in every call, so that what it needs is still near; then it takes what others have left.
// A thread that comes late, or has lost its core, so costs little more than the item it is in.
template <class Body> TW_INLINE void share_out(void *stream, int64_t workers, int64_t items, const Body &body) {
  struct alignas(64) Stretch {
    int64_t next, end;
  };
  constexpr int64_t most_stretches = 64;
  workers = workers < items ? workers : items;
  if (!stream || workers <= 1) {
    for (int64_t item = 0; item < items; ++item) body(int64_t(0), item);
    return;
  }
  const int64_t count = workers < most_stretches ? workers : most_stretches;
  Stretch stretches[most_stretches];
  for (int64_t i = 0; i < count; ++i) stretches[i] = {items * i / count, items * (i + 1) / count};
  parallel(stream, workers, [&](int64_t worker) {
    for (int64_t i = 0; i < count; ++i) {
      Stretch &from = stretches[(worker + i) % count];
      for (;;) {
        int64_t item = __atomic_fetch_add(&from.next, 1, __ATOMIC_RELAXED);
        if (item >= from.end) break;
        body(worker, item);
      }
    }
  });
}

}  // namespace tw
