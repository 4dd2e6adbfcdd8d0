// A tile whose k is shared by the blocks of a cluster: each writes its accumulators into the stages, which are empty by then, and
// adds up and stores a share of the tile's rows, reading from the shared memory of all.  Nothing goes through memory, and
// the accumulators are added in the order of k.
#pragma once
#include <tilewright/cuda/gemm/tma_ws/splits.h>
#include <tilewright/gpu/split_k.h>

namespace tw {

// The accumulators of a tile, by rows of the problem (swap_ab: those are the kernel's columns).
template <class S> struct ClusterStaging {
  static constexpr int lines = S::SwapAB ? S::BN : S::BM, width = S::SwapAB ? S::BM : S::BN;
  // Crossed so that neither the lanes that write accumulators nor those of a row meet in a bank; eight columns stay together.
  static constexpr int cross = width % 32 == 0 ? 32 : width % 16 == 0 ? 16 : 8;
  static TW_GPU int at(int line, int column) {
    return line * width + (column ^ (S::SwapAB ? line >> 1 : line) * 8 % cross);
  }
};

template <class S> TW_GPU void lay_out(float *staging, const Accumulators<S> &d, const Warpgroup &me) {
  using Staging = ClusterStaging<S>;
#pragma unroll
  for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
    for (int j = 0; j < S::BN / 4; ++j) {  // two neighbouring columns
      const int r = me.who * S::rows + i * 64 + me.warp * 16 + j % 2 * 8 + me.lane / 4, c = j / 2 * 8 + me.lane % 4 * 2;
      const float left = to_word(d[i][j * 2]), right = to_word(d[i][j * 2 + 1]);
      if constexpr (S::SwapAB) {
        staging[Staging::at(c, r)] = left;
        staging[Staging::at(c + 1, r)] = right;
      } else {
        *reinterpret_cast<float2 *>(staging + Staging::at(r, c)) = float2{left, right};
      }
    }
}

// All 256 threads of both warpgroups, once the block's last stage is multiplied.
template <class S, class Config> TW_GPU void reduce_across_cluster(const Accumulators<S> &d, const Segment &s,
                                                                   const TmaWsArgs &x, const Warpgroup &me,
                                                                   const SharedMemory<S> &shared) {
  using Staging = ClusterStaging<S>;
  using Sum = SumOf<S>;
  constexpr int threads = 256, some = 8, along = Staging::width / some;
  float *staging = reinterpret_cast<float *>(shared.stages);
  named_barrier(4, threads);  // both have multiplied what the stages held
  lay_out<S>(staging, d, me);
  cluster_sync();
  // Where the tile begins, and how much of it is inside E.
  const int row0 = S::SwapAB ? s.n * S::BN : s.m * S::BM, column0 = S::SwapAB ? s.m * S::BM : s.n * S::BN;
  const int rows = S::SwapAB ? x.n : x.m, columns = S::SwapAB ? x.m : x.n;
  const int inside = min(Staging::lines, rows - row0);
  const int first = inside * s.part / S::ClusterK, last = inside * (s.part + 1) / S::ClusterK;
  const Finish<Config> finish(x.finish);
  auto *e = static_cast<typename Config::C *>(x.e) + s.z * x.e_batch_stride;
#pragma unroll(S::ClusterK == 2 && !Finish<Config>::fused ? 4 : 2)
  for (int at = me.who * 128 + me.thread + first * along; at < last * along; at += threads) {
    const int line = at / along, column = at % along * some;
    if (column0 + column >= columns) continue;
    const float *from = staging + Staging::at(line, column);
    const float4 own_low = *reinterpret_cast<const float4 *>(from),
                 own_high = *reinterpret_cast<const float4 *>(from + 4);
    float4 v[S::ClusterK][2];
#pragma unroll
    for (int q = 0; q < S::ClusterK; ++q)
      v[q][0] = load_neighbour(from, q, s.part, own_low), v[q][1] = load_neighbour(from + 4, q, s.part, own_high);
#pragma unroll
    for (int q = 1; q < S::ClusterK; ++q) add<Sum>(v[0][0], v[q][0]), add<Sum>(v[0][1], v[q][1]);
    const float4 low = v[0][0], high = v[0][1];
    const Sum accum[some] = {from_word<Sum>(low.x),  from_word<Sum>(low.y),  from_word<Sum>(low.z),
                             from_word<Sum>(low.w),  from_word<Sum>(high.x), from_word<Sum>(high.y),
                             from_word<Sum>(high.z), from_word<Sum>(high.w)};
    const int row = row0 + line;
    finish.store(accum, columns - column0 - column, s.z, row, column0 + column,
                 e + row * x.e_stride + column0 + column);
  }
}

}  // namespace tw
