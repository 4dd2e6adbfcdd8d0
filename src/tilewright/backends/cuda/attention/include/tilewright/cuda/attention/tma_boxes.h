// How TMA brings a tile of keys or values: one box of rows, or boxes that divide pages.
#pragma once
#include <tilewright/cuda/attention/work_items.h>
#include <tilewright/cuda/primitives/tma.h>

#ifdef TW_ON_GPU
namespace tw {

// Blocks of `Line` elements (128 bytes) of S::BN rows from a key on; the whole warp comes along.
template <class S, int Blocks, int Line> TW_GPU void bring_tile(const AttentionWsArgs &x, const TensorMap &map,
                                                                Barrier &full, char *to, const AttentionItem &item,
                                                                int key, int head) {
  const int lane = int(threadIdx.x % 32);
  if (lane == 0) full.expect(Blocks * S::BN * 128);
  if constexpr (S::Paged) {
    __syncwarp();
    // Boxes divide pages and tiles; those behind the last key are of a page that does not exist, which is zeros.
    const int size = int(x.x.pages.size);
    for (int at = lane * x.page_rows; at < S::BN; at += 32 * x.page_rows) {
      const int page = (key + at) / size, slot = key + at - page * size;
      const int there = key + at < item.keys ? int(page_of(x.x.pages, item.sequence, page)) : int(x.x.pages.count);
#pragma unroll
      for (int j = 0; j < Blocks; ++j)
        tma_load_rows(&map, &full, to + (j * S::BN + at) * 128, j * Line, slot, head, there);
    }
  } else if (lane == 0) {
    const int z = x.x.starts_k ? 0 : item.sequence;
#pragma unroll
    for (int j = 0; j < Blocks; ++j)
      tma_load_rows(&map, &full, to + j * S::BN * 128, j * Line, item.first_key + key, head, z);
  }
}

// Query rows of several heads, side by side in lines of a swizzled tile: TMA does not know such boxes.  Of
// `Threads` threads this is number `thread`; several loads are under way at a time.
template <class S, int Threads>
TW_GPU void carry_packed_rows(const AttentionWsArgs &x, const AttentionItem &item, char *q, int thread) {
  constexpr int pieces = S::blocks_d * 8, all = S::BM * pieces, at_once = 6;
  const int in_all = rows_in_all<S>(x, item);
  const tw_attention_strides &at = x.x.q_strides;
  const typename S::T *from =
      static_cast<const typename S::T *>(x.x.q) + item.sequence * at.batch + int64_t(item.first_row) * at.row;
#pragma unroll 1
  for (int first = thread; first < all; first += at_once * Threads) {
    uint4 value[at_once];
#pragma unroll
    for (int n = 0; n < at_once; ++n) {
      const int i = first + n * Threads, line = i / pieces, piece = i % pieces, row = item.tile * S::BM + line;
      value[n] = uint4{0, 0, 0, 0};
      if (i < all && row < in_all && piece * 8 < x.x.head_qk) {
        const int position = position_of<S>(x, row);
        const int64_t head = item.head * x.group + row - position * x.group;
        value[n] = *reinterpret_cast<const uint4 *>(from + position * at.row + head * at.head + piece * 8);
      }
    }
#pragma unroll
    for (int n = 0; n < at_once; ++n) {
      const int i = first + n * Threads, line = i / pieces, piece = i % pieces;
      if (i < all)
        *reinterpret_cast<uint4 *>(q + piece / 8 * S::BM * 128 + line * 128 + ((piece ^ line) % 8) * 16) = value[n];
    }
  }
}

}  // namespace tw
#endif
