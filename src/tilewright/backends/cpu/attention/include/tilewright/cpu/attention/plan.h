// How attention is laid over a team: items in a queue that all threads take from.
//
// Which keys are summed in which order follows from the problem and the kernel alone, so the result is the same on any
// number of threads: a split of the keys becomes an item of its own only where the problem has few rows and heads.
#pragma once
#include <tilewright/cpu/attention/view.h>
#include <tilewright/cpu/primitives/team.h>
#include <tilewright/select/threads.h>

namespace tw {

// Tiles of at most `width` rows of one head of keys.  Where a window lets late rows see other keys than early ones, tiles
// do not reach from one query head into the next; else they do, so that lanes are full.
struct Tiling {
  int64_t width, apart, per_head, tiles;

  TW_INLINE Tiling(const tw_attention_args &x, const Packed &all, int64_t widest) : width(widest) {
    bool bounded = x.window_left >= 0 || x.window_right >= 0;
    apart = bounded && all.rows >= width;
    per_head = (all.rows + width - 1) / width;
    tiles = apart ? all.group * per_head : (all.total() + width - 1) / width;
  }
  TW_INLINE int64_t first(const Packed &all, int64_t tile) const {
    return apart ? tile / per_head * all.rows + tile % per_head * width : tile * width;
  }
  TW_INLINE int64_t count(const Packed &all, int64_t tile) const {
    return apart ? least(width, all.rows - tile % per_head * width) : least(width, all.total() - tile * width);
  }
};

// Parts of the keys: enough of them that many threads find work, none shorter than `shortest`.
struct Parts {
  static constexpr int64_t enough = 48;
  int64_t count, span;

  TW_INLINE Parts(int64_t items, int64_t keys, int64_t shortest) : count(1), span(most(keys, 1)) {
    if (items >= enough || items < 1 || keys < 2 * shortest) return;
    int64_t wanted = (enough + items - 1) / items;
    span = most(shortest, up((keys + wanted - 1) / wanted, 64));
    count = (keys + span - 1) / span;
  }
};

// An item of the queue: some tiles of one head of keys (or of a few that are traversed together) in one split of them.
struct Item {
  int64_t sequence, head, set, part;
};
// How many of both each set of tiles has.
struct Shared {
  int64_t heads, parts;
};

// Finds items by their number; numbers only grow.  Items of a sequence: sets from the last to the first (those see most),
// in each all heads and splits.
template <class SetsOf> struct Queue {
  const tw_attention_args &x;
  const SetsOf &sets_of;  // sets of tiles a head of a sequence has
  Shared among;
  int64_t sequence = 0, before = 0, sets;

  TW_INLINE Queue(const tw_attention_args &args, Shared heads_and_parts, const SetsOf &of)
      : x(args), sets_of(of), among(heads_and_parts), sets(of(0)) {}
  TW_INLINE bool find(int64_t number, Item &item) {
    for (;;) {
      int64_t here = sets * among.heads * among.parts;
      if (number < before + here) break;
      before += here;
      if (++sequence >= x.batch) return false;
      sets = sets_of(sequence);
    }
    int64_t left = number - before, of_heads = left / among.parts;
    item = {sequence, of_heads % among.heads, sets - 1 - of_heads / among.heads, left % among.parts};
    return true;
  }
};

// body(worker, item) for all items, on up to `workers` threads.
template <class SetsOf, class Body> TW_INLINE void run_items(const tw_attention_args &x, Shared among,
                                                             const SetsOf &sets_of, int64_t workers, void *stream,
                                                             const Body &body) {
  int64_t next = 0;
  parallel(stream, workers, [&](int64_t worker) __attribute__((noinline)) {
    Queue<SetsOf> queue(x, among, sets_of);
    Item item;
    while (queue.find(__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED), item)) body(worker, item);
  });
}

// Threads worth waking.
TW_INLINE int64_t useful_threads(const tw_attention_args &x, int64_t threads) {
  constexpr double smallest_share = selection::kSmallestShare;
  double rows = x.starts_q ? double(x.rows) : double(x.batch) * double(x.rows);
  double work = rows * double(x.heads_q) * double(x.keys) * double(x.head_qk + x.head_v);
  double some = work / smallest_share + 1;
  return some < double(threads) ? int64_t(some) : threads;
}

}  // namespace tw
