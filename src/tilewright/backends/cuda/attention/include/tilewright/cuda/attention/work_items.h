// Which items a block of attention works on, in which order, and which tiles of keys an item sees.
#pragma once
#include <tilewright/cuda/attention/ws/shape.h>

#ifdef TW_ON_GPU
namespace tw {

template <class S> TW_GPU int position_of(const AttentionWsArgs &x, int row) {
  return S::Packed ? x.by_group.quotient(row) : row;
}
template <class S> TW_GPU int rows_in_all(const AttentionWsArgs &x, const AttentionItem &item) {
  return S::Packed ? item.rows * x.group : item.rows;
}
TW_GPU int shift_of(const AttentionWsArgs &x, const AttentionItem &item) {
  return x.x.bottom_right ? item.keys - item.rows : 0;
}

template <class S> TW_GPU KeyTiles tiles_of(const AttentionWsArgs &x, const AttentionItem &item) {
  const int last_row = min((item.tile + 1) * S::BM, rows_in_all<S>(x, item)) - 1, shift = shift_of(x, item);
  const int p0 = position_of<S>(x, item.tile * S::BM) + shift, p1 = position_of<S>(x, last_row) + shift;
  const int end = max(0, S::Bounded && x.right < unbounded_window ? min(item.keys, p1 + x.right + 1) : item.keys);
  const int begin = min(end, S::Bounded && x.left < unbounded_window ? max(0, p0 - x.left) : 0);
  const int high = (end + S::BN - 1) / S::BN, low = begin < end ? begin / S::BN : high;
  const int sinks = S::Sinks ? min((min(int(x.x.sink_keys), end) + S::BN - 1) / S::BN, low) : 0;
  KeyTiles t{high - low + sinks, high - 1, high - low, low - sinks};
  if constexpr (S::Split) {
    const int splits = int(x.x.splits), each = (t.count + splits - 1) / splits, first = item.split * each;
    t.count = max(0, min(each, t.count - first));
    t.last -= first, t.window -= first;
  }
  return t;
}

// What sees no keys meets a tile all hidden: a way of its own would be in that of the products.
template <class S> TW_GPU void find_tiles(const AttentionWsArgs &x, AttentionItem &item) {
  item.tiles = tiles_of<S>(x, item);
  if (item.tiles.count == 0) item.tiles = {1, 0, 1, 0}, item.keys = 0;
}

// All 32 lanes of the producer warp advance together.  Of packed rows the device counts the items; others have as many tiles
// as the longest sequence may have, and those behind a sequence's own rows are left out.
template <class S> class AttentionOrder {
 public:
  TW_GPU explicit AttentionOrder(const AttentionWsArgs &args) : x(args), number(int(blockIdx.x)) {}

  TW_GPU bool next(AttentionItem &item) {
    do {
      if (!first) number = step();
      first = false;
      const int tile = x.x.splits > 1 ? number / int(x.x.splits) : number;
      item.split = number - tile * int(x.x.splits);
      if (!(S::PackedRows ? by_length(item, tile) : by_count(item, tile))) return false;
      fill(item);
    } while (!S::PackedRows && item.tile * S::BM >= rows_in_all<S>(x, item));
    return true;
  }
  // After the last item: whoever is last puts the counter back.
  TW_GPU void end() {
    if constexpr (S::Dynamic) {
      if (threadIdx.x % 32 == 0 && atomicAdd(x.flags + 1, 1u) == gridDim.x - 1) {
        atomicExch(x.flags, 0u);
        atomicExch(x.flags + 1, 0u);
      }
    }
  }

 private:
  const AttentionWsArgs &x;
  int number;
  bool first = true;
  // Sequences that differ, 32 at a time and the longest of these first: each lane knows one, and how many tiles there are
  // up to its end.
  int window = -32, before = 0, in_window = 0, which = 0, mine = 0;

  TW_GPU int step() {
    if constexpr (S::Dynamic) {
      uint32_t taken = 0;
      if (threadIdx.x % 32 == 0) taken = atomicAdd(x.flags, 1u);
      return int(gridDim.x) + int(lane_at(taken, 0));
    } else {
      return number + int(gridDim.x);
    }
  }
  TW_GPU void fill(AttentionItem &item) const {
    const AttentionSequence s = sequence_of(x.x, item.sequence);
    item.first_row = int(s.first_row), item.rows = int(s.rows);
    item.first_key = int(s.first_key), item.keys = int(s.keys);
  }
  // The longest first: the last rows of as many heads as fit the second-level cache, then the rows before them.
  TW_GPU bool by_count(AttentionItem &item, int tile) const {
    const int all = x.heads * int(x.x.batch), chunk = tile / (x.row_tiles * x.together);
    if (tile >= all * x.row_tiles) return false;
    const int here = min(x.together, all - chunk * x.together), rest = tile - chunk * x.row_tiles * x.together;
    const int z = chunk * x.together + rest % here;
    item.tile = x.row_tiles - 1 - rest / here;
    item.sequence = z / x.heads, item.head = z % x.heads;
    return true;
  }
  TW_GPU int tiles_of_sequence(int sequence) const {
    if (sequence >= x.x.batch) return 0;
    AttentionSequence s{sequence, 0, 0, 0, 0};
    rows_of(x.x, s);
    const int rows = int(s.rows) * (S::Packed ? x.group : 1);
    return (rows + S::BM - 1) / S::BM;
  }
  // The sequence of the window that comes at this lane's place: what takes longest begins first, and blocks end together.
  TW_GPU int sequence_at_place() const {
    const int lane = int(threadIdx.x % 32);
    uint32_t length = uint32_t(31 - lane);  // of two alike the first
    if (window + lane < x.x.batch) length |= uint32_t(sequence_of(x.x, window + lane).keys) / 8 << 5;
    int place = 0, found = 0;
#pragma unroll 4
    for (int i = 0; i < 32; ++i) place += lane_at(length, i) > length;
#pragma unroll 4
    for (int i = 0; i < 32; ++i)
      if (int(lane_at(uint32_t(place), i)) == lane) found = i;
    return window + found;
  }
  TW_GPU bool by_length(AttentionItem &item, int tile) {
    const int wanted = tile / x.heads, lane = int(threadIdx.x % 32);
    while (wanted >= before + in_window) {
      window += 32, before += in_window;
      if (window >= x.x.batch) {
        in_window = 0, window -= 32;
        return false;
      }
      which = sequence_at_place();
      mine = tiles_of_sequence(which);
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const int lower = int(lane_at(uint32_t(mine), lane - by < 0 ? lane : lane - by));
        if (lane >= by) mine += lower;
      }
      in_window = int(lane_at(uint32_t(mine), 31));
    }
    int at = 0;  // the first sequence whose tiles end behind the wanted one
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
      if (before + int(lane_at(uint32_t(mine), at + by - 1)) <= wanted) at += by;
    const int ends = before + int(lane_at(uint32_t(mine), at));
    item.sequence = int(lane_at(uint32_t(which), at)), item.head = tile - wanted * x.heads;
    item.tile = ends - 1 - wanted;
    return true;
  }
};

}  // namespace tw
#endif
