// The host's half of attention's gradients by the ws pipeline: tensor maps, the order of tiles, the launch.
#pragma once
#include <tilewright/cuda/attention_backward/clear.h>
#include <tilewright/cuda/attention_backward/ws/shape.h>
#include <tilewright/cuda/host/launch.h>
#include <tilewright/cuda/host/row_maps.h>

#ifndef TW_BACKWARD_CACHED
#define TW_BACKWARD_CACHED (32 << 20)  // bytes that the second-level cache keeps for sure; tests have less
#endif

namespace tw::cuda {

template <class Config, class Shape = AttentionBackwardWs<Config>> struct HostAttentionBackwardWs {
  using Args = tw_attention_backward_args;
  using S = Shape;
  using T = typename S::T;
  // Whose turn it is, a word for a tile of rows and a warpgroup.
  static int64_t turns_bytes(const Args &x) {
    return x.deterministic ? (x.batch * x.heads_q * ceil_div(x.rows, S::BM) * S::W * 4 + 63) / 64 * 64 : 0;
  }
  static int64_t workspace(const Args &x) { return turns_bytes(x); }
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), 1, true, true};
  }

  static int run(const Args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (turns_bytes(x) && !workspace) return TW_BAD_ARGS;
    if (int status = clear(x, place, workspace, stream)) return status;
    const int64_t keys = x.starts_k ? x.total_keys : x.keys;
    if (keys == 0 || x.batch == 0) return TW_OK;
    AttentionBackwardWsArgs t = lay(x, place.multiprocessors);
    t.turns = static_cast<unsigned *>(turns_bytes(x) ? workspace : nullptr);
    TensorMap maps[5] = {};
    if (int error = all_maps(x, maps)) return status_of(error);
    const int64_t blocks = int64_t(t.key_tiles) * x.heads_kv * x.batch * t.parts;
    return start(place.functions[0], {unsigned(blocks)}, shape(), stream, maps[0], maps[1], maps[2], maps[3], maps[4],
                 t);
  }

 private:
  struct Sizes {
    int64_t rows, heads, outer;
  };
  static Sizes row_sizes(const Args &x) {
    return x.starts_q ? Sizes{x.total_rows, x.heads_q, 1} : Sizes{x.rows, x.heads_q, x.batch};
  }
  static Sizes key_sizes(const Args &x) {
    return x.starts_k ? Sizes{x.total_keys, x.heads_kv, 1} : Sizes{x.keys, x.heads_kv, x.batch};
  }
  static int64_t accum_rows(const Args &x) {
    return x.starts_q ? (x.total_rows / prepared_rows + (x.batch > 1 ? x.batch : 1)) * prepared_rows
                      : prepared_end(x.rows);
  }

  static int clear(const Args &x, const Loaded::Place &place, void *workspace, void *stream) {
    const int64_t rows = accum_rows(x), outer = x.starts_q ? 1 : x.batch;
    const int64_t floats = x.dq_cleared ? 0 : outer * x.heads_q * rows * x.head_qk;  // no gaps between accumulators
    BackwardClearArgs c{x.dq, workspace, floats / 4, turns_bytes(x) / 16, added_of<Config>(x)};
    const int64_t words = c.accum_words + c.turns_words + c.added.entries();
    if (words == 0) return TW_OK;
    const int64_t most = int64_t(place.multiprocessors) * 8, wanted = ceil_div(words, backward_clear_threads);
    const LaunchShape like{unsigned(backward_clear_threads), 0, 1, false, true};
    return start(place.functions[1], {unsigned(wanted < most ? wanted : most)}, like, stream, c);
  }

  static AttentionBackwardWsArgs lay(const Args &x, int multiprocessors) {
    AttentionBackwardWsArgs t{backward_call<Config>(x), 0, 0, 1, 1, 1, multiprocessors, 0, 0, {}, nullptr};
    t.key_tiles = int(x.keys > 0 ? ceil_div(x.keys, S::BN) : 1);
    t.loose_rows = x.starts_q || x.lengths_q, t.loose_keys = x.starts_k || x.lengths_k;
    if (Config::dropout) t.drops = Dropout::of(x.dropout, whole_of(x.seed), whole_of(x.offset));
    if (S::Shares) t.parts = int(x.dkv_heads / x.heads_kv);
    const int64_t all = x.heads_kv * x.batch, here = heads_together(x);
    const int64_t last = S::Bounded ? ceil_div(last_waves * multiprocessors, int64_t(t.key_tiles) * t.parts) : 1;
    t.together = int(here), t.chunks = int(last < all ? 1 + (all - (last > here ? last : here)) / here : 1);
    t.down_from = t.chunks;
    if (S::Bounded && t.left >= backward_unbounded)
      t.down_from = crowded(x, t, multiprocessors) ? 0 : t.chunks - (x.deterministic != 0);
    return t;
  }
  // Whether rows of a group's heads leave the cache before all blocks met them: a block of the first keys has many rows of
  // a head, one of the last keys few, and is soon some heads ahead.  From the last rows down, and of each all heads of the
  // group, blocks that begin together stay together.  Blocks that share a tile of keys have a head or less each.
  static bool crowded(const Args &x, const AttentionBackwardWsArgs &t, int multiprocessors) {
    const int64_t begun = ceil_div(multiprocessors, int64_t(t.key_tiles)), all = x.heads_kv * x.batch;
    return t.parts == 1 && x.heads_q > x.heads_kv &&
           (begun < all ? begun : all) * head_bytes(x) > int64_t(TW_BACKWARD_CACHED);
  }
  // Rows and accumulators that the blocks of a head of keys meet, of all query heads of its group.
  static int64_t head_bytes(const Args &x) {
    return x.rows * (x.heads_q / x.heads_kv) * (x.head_qk * int64_t(sizeof(T) + 4) + x.head_v * int64_t(sizeof(T)));
  }
  // Blocks that end last should be short: the longest first of so many for each multiprocessor.
  static constexpr int64_t last_waves = 2;
  // Heads of keys whose tiles are mixed, the longest first: as many as the second-level cache keeps rows and accumulators of.
  // Without a window all are as long, and only in turns, where blocks of one head wait for each other, heads are mixed:
  // their blocks meet one query head of a group at a time.
  static int64_t heads_together(const Args &x) {
    if (!S::Bounded && !x.deterministic) return 1;
    const int64_t of_a_head = head_bytes(x) / (S::Bounded ? 1 : x.heads_q / x.heads_kv), all = x.heads_kv * x.batch;
    const int64_t kept = int64_t(TW_BACKWARD_CACHED) / (of_a_head > 0 ? of_a_head : 1);
    return kept < 1 ? 1 : kept > all ? all : kept;
  }

  static int all_maps(const Args &x, TensorMap (&maps)[5]) {
    const Sizes n = row_sizes(x), m = key_sizes(x);
    if (int error = known<T>().get(key(x.k, x.head_qk, m, x.k_strides, S::BN), maps[1])) return error;
    if (int error = known<T>().get(key(x.v, x.head_v, m, x.v_strides, S::BN), maps[2])) return error;
    maps[0] = maps[3] = maps[4] = maps[1];
    if (n.rows == 0) return 0;  // no row is brought
    if (int error = known<T>().get(key(x.q, x.head_qk, n, x.q_strides, S::BM), maps[0])) return error;
    if (int error = known<T>().get(key(x.dout, x.head_v, n, x.dout_strides, S::BM), maps[3])) return error;
    const Sizes accum{accum_rows(x), x.heads_q, n.outer};
    return known<float>().get(key(x.dq, x.head_qk, accum, x.dq_strides, S::dq_rows), maps[4]);
  }
  template <class E> static KnownMaps<RowsMap<E>> &known() {
    static KnownMaps<RowsMap<E>> maps;
    return maps;
  }
  static RowsKey key(const void *at, int64_t head, const Sizes &n, const tw_attention_strides &s, uint32_t rows) {
    return {at, {head, n.rows, n.heads, n.outer}, {s.row, s.head, s.batch}, rows};
  }
};

}  // namespace tw::cuda
