// A tile whose k is shared by the two blocks of a cluster.  Each block finishes the rows of one of its warpgroups: the
// other warpgroup hands its sums to the block that finishes those rows, straight from the registers into the stages there,
// which are empty by then.  Nothing goes through memory, and the sums are added in the order of k.
#pragma once
#include <tilewright/cuda/tma_ws_parts.h>
#include <tilewright/gpu/split_k.h>

namespace tw {

// True: the warpgroup's sums are those of the whole k now, and it has to store them.
template <class S>
TW_GPU bool gather(Sums<S> &d, const Segment &s, const Warpgroup &me, const SharedMemory<S> &shared) {
  using Sum = SumOf<S>;
  static_assert(S::ClusterK == 2, "as many blocks as warpgroups");
  constexpr int octets = S::BN / 8;
  float4 *mine = reinterpret_cast<float4 *>(shared.stages) + me.thread;
  const bool finishes = me.who == s.part;
  cluster_sync();  // both blocks have multiplied what their stages held
  if (!finishes)
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < octets; ++j) {
        const Sum *v = &d[i][j * 4];
        store_neighbour(mine + (i * octets + j) * 128, me.who,
                        float4{to_word(v[0]), to_word(v[1]), to_word(v[2]), to_word(v[3])});
      }
  cluster_sync();
  if (finishes)
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < octets; ++j) {
        const float4 v = mine[(i * octets + j) * 128];
        Sum *to = &d[i][j * 4];
        // The same order in both blocks: of two it does not matter.
        to[0] += from_word<Sum>(v.x), to[1] += from_word<Sum>(v.y), to[2] += from_word<Sum>(v.z),
            to[3] += from_word<Sum>(v.w);
      }
  return finishes;
}

}  // namespace tw
