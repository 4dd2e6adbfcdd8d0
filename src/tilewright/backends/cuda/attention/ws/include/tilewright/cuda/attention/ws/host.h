// The host's half of attention by the ws pipeline: what it refuses, tensor maps, the order of items, the launch.
#pragma once
#include <tilewright/cuda/host/row_maps.h>
#include <tilewright/cuda/attention/ws/shape.h>
#include <tilewright/cuda/host/launch.h>
#include <tilewright/say.h>

namespace tw::cuda {

template <class Config, class Shape = AttentionWs<Config>> struct HostAttentionWs {
  using Args = tw_attention_args;
  using S = Shape;
  using T = typename S::T;
  static constexpr int64_t clear_bytes = S::Dynamic ? 64 : 0;

  static Answer broken(const Args &x) {
    if (x.starts_q && !S::PackedRows) return {TW_BAD_ARGS, "rows are packed and the kernel takes none"};
    const bool whole = no_rows(x) || x.splits == 1 || !odd(x.o_split, sizeof(typename S::O));
    return whole ? Answer{} : Answer{TW_ALIGNMENT, "parts of the results are not a multiple of 16 bytes apart"};
  }
  static int64_t workspace(const Args &) { return clear_bytes; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), 1, true}; }

  static int run(const Args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (S::Dynamic && !workspace) return TW_BAD_ARGS;
    if (rows_sizes(x).rows == 0) return TW_OK;
    AttentionWsArgs t = lay(x);
    t.flags = static_cast<unsigned *>(workspace);
    TensorMap q = {}, k = {}, v = {};
    if (int error = maps(x, t, q, k, v)) return status_of(error);
    const int64_t items = int64_t(t.row_tiles) * t.heads * x.batch * x.splits;
    const int64_t here = int64_t(place.multiprocessors) * (place.ctas_per_sm > 0 ? place.ctas_per_sm : 1);
    return start(place.functions[0], {unsigned(items < here ? items : here)}, shape(), stream, q, k, v, t);
  }

 protected:  // what the mma pipeline lays out alike
  struct Sizes {
    int64_t rows, heads, outer;
  };
  static Sizes rows_sizes(const Args &x) {
    return x.starts_q ? Sizes{x.total_rows, x.heads_q, 1} : Sizes{x.rows, x.heads_q, x.batch};
  }
  static Sizes key_sizes(const Args &x) {
    if (S::Paged) return {x.pages.size, x.heads_kv, x.pages.count};
    return x.starts_k ? Sizes{x.total_keys, x.heads_kv, 1} : Sizes{x.keys, x.heads_kv, x.batch};
  }
  static bool odd(int64_t stride, int64_t bytes) { return stride * bytes % 16 != 0; }
  static int bound(int64_t window) { return window < 0 || window >= unbounded_window ? unbounded_window : int(window); }

  static AttentionWsArgs lay(const Args &x) {
    constexpr double log2_e = 1.4426950408889634;
    AttentionWsArgs t{};
    t.x = x;
    t.scale = float(x.scale);
    // A scale of 0 keeps what is hidden hidden: minus infinity times next to nothing.
    t.fold = float(S::scored ? log2_e : x.scale * log2_e);
    if (t.fold < 0) t.fold = -t.fold, t.flip = 1;
    if (t.fold == 0) t.fold = 1e-37f;
    t.cap = float(x.softcap), t.over_cap = x.softcap > 0 ? float(1 / x.softcap) : 0.0f;
    t.group = int(x.heads_q / x.heads_kv);
    t.by_group = divider(t.group);
    t.heads = int(S::Packed ? x.heads_kv : x.heads_q);
    t.left = bound(x.window_left), t.right = bound(x.window_right);
    if (t.left == unbounded_window) t.x.sink_keys = 0;
    t.row_tiles = int(ceil_div(x.rows * (S::Packed ? t.group : 1), S::BM));
    t.items = x.starts_q || x.lengths_q ? 0 : int(t.row_tiles * t.heads * x.batch);
    t.loose = S::Paged || x.starts_k || x.lengths_k;
    t.together = int(heads_together(x) * (S::Packed ? 1 : t.group));
    int64_t size = S::Paged ? x.pages.size : S::BN, rows = S::BN;
    while (size) {
      const int64_t rest = rows % size;
      rows = size, size = rest;
    }
    t.page_rows = int(rows);
    return t;
  }

  // Heads of keys whose items are mixed, the longest first: as many as the second-level cache keeps, and not so many that
  // all fetch keys at once.  Items that are equally long need no order: those of a head come one after another.
  static int64_t heads_together(const Args &x) {
    if (!S::Bounded) return 1;
    const int64_t of_a_head = x.keys * (x.head_qk + x.head_v) * int64_t(sizeof(T));
    const int64_t kept = (int64_t(32) << 20) / (of_a_head > 0 ? of_a_head : 1);
    return kept < 1 ? 1 : kept > 32 ? 32 : kept;
  }

  static int maps(const Args &x, const AttentionWsArgs &t, TensorMap &q, TensorMap &k, TensorMap &v) {
    if (int error = known_maps().get(key(x.q, x.head_qk, rows_sizes(x), x.q_strides, S::BM), q)) return error;
    return key_maps(x, t, k, v);
  }
  static int key_maps(const Args &x, const AttentionWsArgs &t, TensorMap &k, TensorMap &v) {
    const Sizes m = key_sizes(x);
    const uint32_t rows = S::Paged ? uint32_t(t.page_rows) : uint32_t(S::BN);
    if (m.rows == 0 || m.outer == 0) {  // whatever is brought is hidden
      const int error = known_maps().get(key(x.q, x.head_qk, rows_sizes(x), x.q_strides, rows), k);
      v = k;
      return error;
    }
    if (int error = known_maps().get(key(x.k, x.head_qk, m, x.k_strides, rows), k)) return error;
    return known_maps().get(key(x.v, x.head_v, m, x.v_strides, rows), v);
  }
  static KnownMaps<RowsMap<T>> &known_maps() {
    static KnownMaps<RowsMap<T>> known;
    return known;
  }
  static RowsKey key(const void *at, int64_t head, const Sizes &n, const tw_attention_strides &s, uint32_t rows) {
    return {at, {head, n.rows, n.heads, n.outer}, {s.row, s.head, s.batch}, rows};
  }
};

}  // namespace tw::cuda
