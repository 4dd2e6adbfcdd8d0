// Which rows a block has, and which tiles of keys it meets.
#pragma once
#include <tilewright/attention_rules.h>
#include <tilewright/gpu/divide.h>

namespace tw::hip {

struct AttentionTiledArgs {
  tw_attention_args x;
  Divider by_group;  // query heads of a head of keys
  int row_tiles;     // of the longest sequence
};

#if defined(__HIP_DEVICE_COMPILE__)

// Keys that rows see: any of them, and all of them.
struct SeenKeys {
  int begin, whole_begin, whole_end, end;
};

// Tiles of keys: some of the first, whose keys are always seen, then those of the rows' windows.
struct TileTraversal {
  int count, first, sinks, low;
  TW_GPU int operator[](int i) const { return i < sinks ? first + i : low + i - sinks; }
  // So many from `from` on; one may be beyond the last.
  TW_GPU void only(int from, int most) {
    const int passed = from < sinks ? from : sinks;
    first += passed, sinks -= passed, low += from - passed;
    count = count - from < most ? count - from : most;
    count = count < 0 ? 0 : count;
  }
};

// A block: rows of the query heads of one head of keys, a row's heads side by side.
template <class Config> struct BlockRows {
  const tw_attention_args &x;
  const Divider by_group;
  AttentionSequence s;
  int part, head_kv, first, rows;  // rows: of all these heads

  TW_GPU explicit BlockRows(const AttentionTiledArgs &a) : x(a.x), by_group(a.by_group) {
    unsigned at = blockIdx.x;
    const unsigned tiles = unsigned(a.row_tiles), heads = unsigned(x.heads_kv), parts = unsigned(x.splits);
    first = int(tiles - 1 - at % tiles) * Config::tile_m, at /= tiles;  // the longest first
    head_kv = int(at % heads), at /= heads;
    part = int(at % parts), at /= parts;
    s = sequence_of(x, int64_t(at));
    rows = int(s.rows) * int(by_group.by);
  }
  TW_GPU int position(int row) const { return by_group.quotient(row); }
  TW_GPU int head(int row) const {
    return (head_kv - position(row)) * int(by_group.by) + row;  // the row's place among those of its position
  }
  // Of rows low to high.
  TW_GPU SeenKeys seen_by(int low, int high) const {
    const Span early = window_of(x, s, position(low)), late = window_of(x, s, position(high));
    return {int(early.begin), int(late.begin), int(early.end), int(late.end)};
  }
  TW_GPU int at_most_last(int row) const { return row < rows ? row : rows - 1; }

  TW_GPU TileTraversal traversal() const {
    constexpr int tile_n = Config::tile_n;
    const SeenKeys keys = seen_by(first, at_most_last(first + Config::tile_m - 1));
    const int high = (keys.end + tile_n - 1) / tile_n;
    TileTraversal t{0, 0, 0, keys.begin < keys.end ? keys.begin / tile_n : high};
    if constexpr (Config::mask == AttentionMask::generic) {
      const int sinks = (int(x.sink_keys < keys.end ? x.sink_keys : keys.end) + tile_n - 1) / tile_n;
      t.sinks = sinks < t.low ? sinks : t.low;
    }
    t.count = t.sinks + high - t.low;
    if constexpr (Config::family == AttentionFamily::split) {
      const int parts = int(x.splits), each = (t.count + parts - 1) / parts;
      t.only(part * each, each);
    }
    return t;
  }
};

#endif

}  // namespace tw::hip
