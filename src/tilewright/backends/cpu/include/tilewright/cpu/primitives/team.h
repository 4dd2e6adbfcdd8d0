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

}  // namespace tw
