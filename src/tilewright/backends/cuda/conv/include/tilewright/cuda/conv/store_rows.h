// The epilogue store of a convolution whose rows of results lie anywhere: each warp lays its 16 rows out in shared memory
// and goes along them, 16 bytes a lane.  (Rows sent by TMA one by one were slower: it has the pixels to fetch.)
#pragma once
#include <tilewright/cuda/conv/tma_ws/shape.h>
#include <tilewright/cuda/gemm/tma_ws/epilogue_store.h>

namespace tw {

template <class S, class Config> struct RowEpilogueStore {
  using Out = typename Config::C;
  using Piece = Some<Out, 8>;
  static constexpr int width = S::chunk_columns, across = S::BN / width, pieces = width / 8, at_once = 32 / pieces;

  const ConvWsArgs &x;
  const Warpgroup &me;
  char *buffer;  // this warp's
  Fuse<S, Config> fuse;
  int column = -1, z = -1;  // whose D tensors are kept

  template <class Memory> TW_GPU RowEpilogueStore(const TensorMap &, const TensorMap &, const ConvWsArgs &args,
                                                  const Warpgroup &group, const Memory &shared)
      : x(args),
        me(group),
        buffer(shared.out + group.who * S::buffers * S::chunk + group.warp * 16 * S::row_bytes),
        fuse(args, group) {}

  // D tensors here are one number a column: those of the tile before serve the next of the same columns.
  TW_GPU void begin(const Segment &s, const Place<S> &place) {
    const Part<Out> p = part(s, place);
    if (Config::num_d == 0 || (p.column == column && p.z == z)) return;
    column = p.column, z = p.z;
    fuse.begin(p);
    __syncwarp();  // so that the compiler knows lanes to be together again
  }
  // Two lanes for each of the warp's 16 rows find out where it lies.
  TW_GPU void operator()(Accumulators<S> &d, const Segment &s, const Place<S> &place) {
    const Part<Out> p = part(s, place);
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i) {
      const long long at = S::row_at(x, p.z, p.row + i * 64 + me.warp * 16 + me.lane % 16);
      const uint32_t low = uint32_t(at), high = uint32_t(at >> 32);
#pragma unroll
      for (int c = 0; c < across; ++c) {
        if constexpr (Fuse<S, Config>::always_simple) fuse.simply(d[i], c * width);
        else if (Config::num_d == 1 && fuse.simple()) fuse.simply(d[i], c * width);
        else fuse(d[i], i, c * width, p, buffer);
        __syncwarp();  // all have read what was there
        fill(d[i], c * width);
        __syncwarp();
        const int piece = me.lane % pieces, first_column = p.column + c * width + piece * 8;
#pragma unroll
        for (int first = 0; first < 16; first += at_once) {
          const int row = first + me.lane / pieces;
          const long long to = (long long)(uint64_t(lane_at(high, row)) << 32 | lane_at(low, row));
          if (to >= 0 && first_column < x.n)
            *reinterpret_cast<Piece *>(p.e + to + first_column) =
                *reinterpret_cast<const Piece *>(buffer + row * S::row_bytes + piece * 16);
        }
      }
    }
  }
  TW_GPU void end() const {}

 private:
  TW_GPU Part<Out> part(const Segment &s, const Place<S> &place) const {
    return {(s.m * S::ClusterM + place.m) * S::BM + (S::PingPong ? 0 : me.who * S::rows),
            (s.n * S::ClusterN + place.n) * S::BN, s.z, static_cast<Out *>(x.e)};
  }
  TW_GPU void fill(const float (&d)[S::BN / 2], int column) const {
    char *row = buffer + me.lane % 16 * S::row_bytes + me.lane / 16 * 16;
#pragma unroll
    for (int j = 0; j < width / 8; j += 2) {
      const float *v = &d[(column / 8 + j) * 4];
      store_matrices(row + j * 16, results<Config>(v[0], v[1]), results<Config>(v[2], v[3]),
                     results<Config>(v[4], v[5]), results<Config>(v[6], v[7]));
    }
  }
};

template <bool ByRows, class S, class Config> struct conv_store {
  using type = EpilogueStore<S, Config>;
};
template <class S, class Config> struct conv_store<true, S, Config> {
  using type = RowEpilogueStore<S, Config>;
};

}  // namespace tw
