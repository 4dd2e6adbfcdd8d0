// How the sums of a convolution leave whose rows of results lie anywhere: through two buffers in turn, which the copy
// engine empties row by row.
#pragma once
#include <tilewright/cuda/conv_tma_ws_shape.h>
#include <tilewright/cuda/tma_ws_leave.h>

namespace tw {

template <class S, class Config> struct LeaveByRows {
  using Out = typename Config::C;
  static constexpr int width = S::chunk_columns, across = S::BN / width, size = 64 * S::row_bytes;

  const ConvWsArgs &x;
  const Warpgroup &me;
  char *buffers;  // this warpgroup's
  int turn = 0;
  Fuse<S, Config> fuse;

  template <class Memory> TW_GPU LeaveByRows(const TensorMap &, const TensorMap &, const ConvWsArgs &args,
                                             const Warpgroup &group, const Memory &shared)
      : x(args), me(group), buffers(shared.out + group.who * S::buffers * S::chunk), fuse(args, group) {}

  TW_GPU void begin(const Segment &s, const Place<S> &place) { fuse.begin(part(s, place)); }
  // A row of each 64 belongs to a thread: it finds out once where that lies.
  TW_GPU void operator()(Sums<S> &d, const Segment &s, const Place<S> &place) {
    const Part<Out> p = part(s, place);
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i) {
      const long long at = me.thread < 64 ? S::row_at(x, p.z, p.row + i * 64 + me.thread) : -1;
#pragma unroll
      for (int c = 0; c < across; ++c) {
        char *here = buffers + turn * size;
        turn ^= 1;
        tma_wait_read<1>();  // of what this buffer held before
        me.meet();
        fuse(d[i], i, c * width, p, here);
        fill(here, d[i], c * width);
        fence_async_proxy();
        me.meet();
        const int column = p.column + c * width, there = min(width, x.n - column);
        if (at >= 0 && there > 0) bulk_store(p.e + at + column, here + me.thread * S::row_bytes, there * 2);
        tma_commit();
      }
    }
  }
  TW_GPU void end() const { tma_wait_read<0>(); }

 private:
  TW_GPU Part<Out> part(const Segment &s, const Place<S> &place) const {
    return {(s.m * S::ClusterM + place.m) * S::BM + (S::PingPong ? 0 : me.who * S::rows),
            (s.n * S::ClusterN + place.n) * S::BN, s.z, static_cast<Out *>(x.e)};
  }
  TW_GPU void fill(char *buffer, const float (&d)[S::BN / 2], int column) const {
    char *row = buffer + (me.warp * 16 + me.lane % 16) * S::row_bytes + me.lane / 16 * 16;
#pragma unroll
    for (int j = 0; j < width / 8; j += 2) {
      const float *v = &d[(column / 8 + j) * 4];
      store_matrices(row + j * 16, pair(Out{}, v[0], v[1]), pair(Out{}, v[2], v[3]), pair(Out{}, v[4], v[5]),
                     pair(Out{}, v[6], v[7]));
    }
  }
};

template <bool ByRows, class S, class Config> struct conv_leave {
  using type = Leave<S, Config>;
};
template <class S, class Config> struct conv_leave<true, S, Config> {
  using type = LeaveByRows<S, Config>;
};

}  // namespace tw
