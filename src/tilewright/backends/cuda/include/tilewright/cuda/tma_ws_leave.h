// How the sums of a multiplying warpgroup of a tma_ws kernel become results and leave: by the copy engine, straight from
// the registers, or through a sheet in shared memory; and where a tile is shared by blocks, through collect first.
#pragma once
#include <tilewright/cuda/tma.h>
#include <tilewright/cuda/tma_ws_collect.h>
#include <tilewright/cuda/wgmma.h>

namespace tw {

// Config: C (the output type), D, epilogue, num_d.
template <class S, class Config> struct Leave {
  using Out = typename Config::C;
  using Sum = SumOf<S>;
  // Such tiles go straight from the registers: a sheet's barriers take longer.
  static constexpr bool small = S::blocks_m == 1 && S::BN <= 64 && !S::TmaStore && !S::Turned;

  const TensorMap &map_e;
  const TmaWsArgs &x;
  const Warpgroup &me;
  const Finish<Config> finish;
  char *chunks;  // this warpgroup's buffers
  int turn = 0;  // the next of them

  // The warpgroup's part of a tile, as the kernel counts rows and columns.
  struct Part {
    int row, column, z;
    Out *e;
  };

  TW_GPU Leave(const TensorMap &map, const TmaWsArgs &args, const Warpgroup &group, char *out)
      : map_e(map), x(args), me(group), finish(args.finish), chunks(out + group.who * S::buffers * S::chunk) {}

  TW_GPU void operator()(Sums<S> &d, const Segment &s, const Place<S> &place) {
    Part p;
    p.row = (s.m * S::ClusterM + place.m) * S::BM + (S::PingPong ? 0 : me.who * S::rows);
    p.column = (s.n * S::ClusterN + place.n) * S::BN;
    p.z = s.z;
    p.e = static_cast<Out *>(x.e) + s.z * x.e_batch_stride;
    if constexpr (S::Dealt != Deal::tiles) {
      if (collected(d, s, p)) return;
    }
    if constexpr (S::TmaStore) {
      if (finish.only_scales()) return by_copy_engine(d, p);
    }
    if constexpr (small) {
      if (finish.only_scales() && pairs_fit()) return from_registers(d, p);
    }
    through_sheet(d, p);
  }
  // Nobody leaves before the copy engine has read the last buffer.
  TW_GPU void end() const {
    if (S::TmaStore && me.thread == 0) tma_wait_read<0>();
  }

 private:
  TW_GPU void put(const Part &p, Sum sum, int row, int column) const {
    if (row >= x.m || column >= x.n) return;
    if constexpr (S::Turned) p.e[column * x.e_stride + row] = finish(sum, p.z, column, row);
    else p.e[row * x.e_stride + column] = finish(sum, p.z, row, column);
  }

  TW_GPU bool collected(Sums<S> &d, const Segment &s, const Part &p) const {
    const Collect<S> collect(x, me);
    if constexpr (S::Dealt == Deal::stream_k) return collect.stream_k(d, s);
    else
      return collect.split_k(d, s, [&](int index, const float4 &v) {
        // Where a float4 of a thread's sums belongs: two columns of two rows, eight apart.
        const int unit = index / 128, owner = index % 128, i = unit / (S::BN / 8);
        const int r = p.row + i * 64 + owner / 32 * 16 + owner % 32 / 4,
                  c = p.column + unit % (S::BN / 8) * 8 + owner % 4 * 2;
        const Sum sums[4] = {from_word<Sum>(v.x), from_word<Sum>(v.y), from_word<Sum>(v.z), from_word<Sum>(v.w)};
#pragma unroll
        for (int q = 0; q < 4; ++q) put(p, sums[q], r + q / 2 * 8, c + q % 2);
      });
  }

  // Through buffers the copy engine empties, `batch` of them at a time.
  TW_GPU void by_copy_engine(Sums<S> &d, const Part &p) {
    const float alpha = float(x.finish.alpha);
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int j = 0; j < S::BN / 2; ++j) d[i][j] *= alpha;
    constexpr int across = S::BN / S::chunk_columns;
#pragma unroll
    for (int first = 0; first < S::needed; first += S::batch) {
      if (me.thread == 0) tma_wait_read<S::buffers / S::batch - 1>();  // of what these buffers held before
      me.meet();
#pragma unroll
      for (int g = 0; g < S::batch; ++g)
        fill(chunks + (turn + g) * S::chunk, d[(first + g) / across], (first + g) % across * S::chunk_columns);
      fence_async_proxy();
      me.meet();
      if (me.thread == 0) {
#pragma unroll
        for (int g = 0; g < S::batch; ++g)
          tma_store(&map_e, chunks + (turn + g) * S::chunk, p.column + (first + g) % across * S::chunk_columns,
                    p.row + (first + g) / across * 64, p.z);
        tma_commit();
      }
      turn = turn + S::batch >= S::buffers ? 0 : turn + S::batch;
    }
  }
  // A buffer with the results of 64 rows from `column` on, swizzled as its tensor map says.
  TW_GPU void fill(char *buffer, const Sum (&d)[S::BN / 2], int column) const {
#pragma unroll
    for (int j = 0; j < S::chunk_columns / 8; j += 2) {
      const float *v = &d[(column / 8 + j) * 4];
      int r = me.warp * 16 + me.lane % 16, column16 = j + me.lane / 16;
      int swizzle = S::chunk_columns == 64 ? r & 7 : S::chunk_columns == 32 ? r >> 1 & 3 : r >> 2 & 1;
      char *to = buffer + r * S::chunk_columns * 2 + ((column16 ^ swizzle) << 4);
      store_matrices(to, pair(Out{}, v[0], v[1]), pair(Out{}, v[2], v[3]), pair(Out{}, v[4], v[5]),
                     pair(Out{}, v[6], v[7]));
    }
  }

  // Two neighbours at a time.
  struct alignas(2 * sizeof(Out)) Pair {
    Out left, right;
  };
  TW_GPU bool pairs_fit() const {
    return reinterpret_cast<uintptr_t>(x.e) % sizeof(Pair) == 0 && (x.e_stride | x.e_batch_stride) % 2 == 0;
  }
  TW_GPU void from_registers(const Sums<S> &d, const Part &p) const {
#pragma unroll
    for (int j = 0; j < S::BN / 4; ++j) {
      const Sum *v = &d[0][j * 2];
      const int r = p.row + me.warp * 16 + j % 2 * 8 + me.lane / 4, c = p.column + j / 2 * 8 + me.lane % 4 * 2;
      if (r >= x.m || c >= x.n) continue;
      Out *to = p.e + r * x.e_stride + c;
      if (c + 1 < x.n) *reinterpret_cast<Pair *>(to) = Pair{finish(v[0], p.z, r, c), finish(v[1], p.z, r, c + 1)};
      else *to = finish(v[0], p.z, r, c);
    }
  }

  // Through one sheet of sums (its columns swizzled over the banks), from which threads go along
  // rows: what is fused reads its tensors and writes E in whole lines, whatever their alignment.
  TW_GPU void through_sheet(const Sums<S> &d, const Part &p) const {
    Sum *sheet = reinterpret_cast<Sum *>(chunks);
#pragma unroll
    for (int i = 0; i < S::blocks_m; ++i)
#pragma unroll
      for (int c = 0; c < S::BN; c += S::chunk_columns) {
        me.meet();
        lay_out(sheet, d[i], c);
        me.meet();
#pragma unroll(S::blocks_m *S::BN / 2 >= 144 ? 1 : 2)  // beside so many sums there is no register left for a second
        for (int at = me.thread; at < 64 * S::chunk_columns; at += 128) {
          int r = S::Turned ? at % 64 : at / S::chunk_columns, q = S::Turned ? at / 64 : at % S::chunk_columns;
          Sum sum = sheet[r * S::chunk_columns + (q ^ r * 8 % S::chunk_columns)];
          put(p, sum, p.row + i * 64 + r, p.column + c + q);
        }
      }
  }
  struct alignas(8) Two {
    Sum left, right;
  };
  TW_GPU void lay_out(Sum *sheet, const Sum (&d)[S::BN / 2], int column) const {
#pragma unroll
    for (int j = 0; j < S::chunk_columns / 8; ++j)
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        const Sum *v = &d[(column / 8 + j) * 4 + up * 2];
        int r = me.warp * 16 + up * 8 + me.lane / 4, at = (j * 8 + me.lane % 4 * 2) ^ r * 8 % S::chunk_columns;
        *reinterpret_cast<Two *>(sheet + r * S::chunk_columns + at) = Two{v[0], v[1]};
      }
  }
};

}  // namespace tw
