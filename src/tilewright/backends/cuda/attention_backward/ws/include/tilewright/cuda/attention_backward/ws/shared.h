// What a block of the ws pipeline of attention's gradients has in shared memory, and which tiles it meets.
#pragma once
#include <tilewright/cuda/attention_backward/ws/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/primitives/barrier.h>
#include <tilewright/cuda/primitives/shared_tiles.h>

namespace tw {

// Keys, values, stages of rows, of their gradients and of the gradients of scores, dq on its way; prepared numbers;
// barriers.
template <class S> struct SharedBackward {
  char *base;
  TW_GPU SharedBackward() : base(shared_tiles()) {}
  TW_GPU char *k() const { return base; }
  TW_GPU char *v() const { return base + S::k_bytes; }
  TW_GPU char *q(int stage) const { return v() + S::v_bytes + stage * S::q_bytes; }
  TW_GPU char *o(int stage) const { return q(S::QStages) + stage * S::o_bytes; }
  TW_GPU char *scores(int stage) const { return o(S::DoStages) + stage * S::score_bytes; }
  TW_GPU char *dq(int who) const { return scores(S::DsStages) + who * S::dq_bytes; }
  // lse of a stage's rows in powers of two, and their delta.
  TW_GPU float *lse(int stage) const { return reinterpret_cast<float *>(dq(S::W) + stage * S::row_numbers); }
  TW_GPU float *delta(int stage) const { return lse(stage) + S::BM; }
  TW_GPU Barrier &full_k() const { return barrier(0); }
  TW_GPU Barrier &full_v() const { return barrier(1); }
  TW_GPU Barrier &full_q(int stage) const { return barrier(2 + stage); }
  TW_GPU Barrier &empty_q(int stage) const { return barrier(2 + S::QStages + stage); }
  TW_GPU Barrier &full_o(int stage) const { return barrier(2 + 2 * S::QStages + stage); }
  TW_GPU Barrier &empty_o(int stage) const { return barrier(2 + 2 * S::QStages + S::DoStages + stage); }

  TW_GPU void init() const {
    full_k().init(1), full_v().init(1);
    for (int i = 0; i < S::QStages; ++i) full_q(i).init(1), empty_q(i).init(128 * S::W);  // who read lse
    for (int i = 0; i < S::DoStages; ++i) full_o(i).init(1), empty_o(i).init(S::W);
    fence_barriers();
  }

 private:
  TW_GPU Barrier &barrier(int number) const { return reinterpret_cast<Barrier *>(lse(S::QStages))[number]; }
};

// What comes before the keys, or the rows, of a tile that a warpgroup scores.
template <class S> TW_GPU int keys_before(int who) { return S::Wide ? 0 : who * 64; }
template <class S> TW_GPU int rows_before(int who) { return S::Wide ? who * S::SN : 0; }

// A tile of keys, and the tiles of rows that see it.
struct BackwardItem {
  int tile, head, sequence, part;  // the head is one of keys
  int first_row, rows, first_key, keys;
  int shift;         // of the window
  int first, count;  // tiles of rows
  int begin, steps;  // of the block: of all query heads' tiles, one head's behind the other's
  bool down;         // from the last tile to the first instead, of each the heads of the group
};

// Iterations over a tile of keys that the blocks before a split have.  In turns a tile of rows belongs to the same split whatever
// keys it meets: else splits would wait for each other's ends.
template <class S> TW_GPU int steps_before(const AttentionBackwardWsArgs &x, const BackwardItem &item, int part) {
  if (!x.turns) return int(int64_t(item.count) * x.group * part / x.parts);
  const int64_t tiles = max(1, (item.rows + S::BM - 1) / S::BM), before = tiles * x.group * part / x.parts;
  if (item.down) return int(min(before, int64_t(item.count) * x.group));
  return int(before / tiles) * item.count + min(max(int(before % tiles) - item.first, 0), item.count);
}

// The order of tiles: those of some heads at a time, which the second-level cache keeps; with a window the longest first.
// Nobody waits for a block behind his: in turns those keys come first that are added first.  The last keys are, the
// shortest first, and each block begins with rows that those before it have left behind.  But of the last heads, where
// each row sees all keys before its last, the first keys come first, so that no long block is left for the end; all blocks
// begin with the last rows, which all of them meet, and follow each other through the rows.  So do all blocks where the
// cache would not keep the rows of a group's heads until the slowest block meets them (host.h).
template <class S> TW_GPU BackwardItem item_of_block(const AttentionBackwardWsArgs &x, int number) {
  BackwardItem item;
  const int all = int(x.x.heads_kv * x.x.batch);
  const int parts = S::Shares ? x.parts : 1, a_chunk = x.key_tiles * x.together * parts;
  const int chunk = min(number / a_chunk, x.chunks - 1);
  const int here = (chunk + 1 < x.chunks ? x.together : all - chunk * x.together) * parts;
  const int rest = number - chunk * a_chunk, z = chunk * x.together + rest % here / parts;
  item.tile = rest / here, item.part = S::Shares ? rest % here % parts : 0;
  item.down = S::Bounded && chunk >= x.down_from;
  if (S::Bounded && x.turns && !item.down) item.tile = x.key_tiles - 1 - item.tile;
  item.sequence = z / int(x.x.heads_kv), item.head = z - item.sequence * int(x.x.heads_kv);
  const AttentionSequence s = sequence_in_rows(x.x, item.sequence);
  item.first_row = int(s.first_row), item.rows = int(s.rows);
  item.first_key = int(s.first_key), item.keys = int(s.keys);
  item.shift = x.x.bottom_right ? item.keys - item.rows : 0;
  const int key = item.tile * S::BN, end = min(key + S::BN, item.keys);
  int low = 0, high = key < item.keys ? item.rows : 0;
  if constexpr (S::Bounded) {
    if (x.right < backward_unbounded) low = max(0, key - item.shift - x.right);
    if (x.left < backward_unbounded && !(S::Sinks && key < int(x.x.sink_keys)))
      high = min(high, end - item.shift + x.left);
  }
  item.first = low / S::BM;
  item.count = max(0, (high + S::BM - 1) / S::BM - item.first);
  if (low >= high) item.count = 0;
  item.begin = S::Shares ? steps_before<S>(x, item, item.part) : 0;
  item.steps = S::Shares ? steps_before<S>(x, item, item.part + 1) - item.begin : item.count * x.group;
  return item;
}

// The iterations of a block: every tile of rows, of every query head of the group, or its part of them.
struct BackwardSteps {
  const BackwardItem &item;
  const int group;
  int left, head, tile;
  TW_GPU BackwardSteps(const BackwardItem &of, int heads)
      : item(of), group(heads), left(of.steps), head(of.head * heads), tile(of.first) {
    if (of.down) {
      const int tiles = of.begin / group;
      tile += of.count - 1 - tiles, head += of.begin - tiles * group;
    } else if (of.begin > 0) {
      const int before = of.begin / of.count;
      head += before, tile += of.begin - before * of.count;
    }
  }
  TW_GPU bool more() const { return left > 0; }
  TW_GPU void next() {
    --left;
    if (item.down) {
      if (++head == (item.head + 1) * group) head -= group, --tile;
    } else if (++tile == item.first + item.count) {
      tile = item.first, ++head;
    }
  }
};

}  // namespace tw
#endif
