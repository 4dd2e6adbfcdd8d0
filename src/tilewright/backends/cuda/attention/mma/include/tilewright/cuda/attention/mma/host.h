// The host's half of attention by the mma pipeline: what it refuses, how rows lie, the launch.
#pragma once
#include <tilewright/cuda/attention/ws/host.h>
#include <tilewright/cuda/attention/mma/shape.h>

namespace tw::cuda {

template <class Config> struct HostAttentionMma : HostAttentionWs<Config, AttentionMma<Config>> {
  using Args = tw_attention_args;
  using S = AttentionMma<Config>;
  using Like = HostAttentionWs<Config, S>;
  static constexpr int64_t clear_bytes = 0;

  static Answer broken(const Args &x) {
    if (x.starts_q && !S::PackedRows) return {TW_BAD_ARGS, "rows are packed and the kernel takes none"};
    return {};
  }
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes)}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    if (Like::rows_sizes(x).rows == 0) return TW_OK;
    AttentionMmaArgs t{};
    t.ws = Like::lay(x);
    t.by_page = divider(S::Paged ? x.pages.size : 1);
    t.wide_q = whole(x.q, x.q_strides, sizeof(typename S::Q));
    t.wide_kv = whole(x.k, x.k_strides, S::size) && whole(x.v, x.v_strides, S::size);
    constexpr int64_t size = sizeof(typename S::O);
    t.wide_o =
        x.head_v % 2 == 0 && uintptr_t(x.o) % uintptr_t(2 * size) == 0 && even(x.o_strides) && x.o_split % 2 == 0;
    t.values_in_keys = x.v == x.k && x.head_v <= x.head_qk && same(x.k_strides, x.v_strides);
    const int64_t items = int64_t(t.ws.row_tiles) * t.ws.heads * x.batch * x.splits;
    return start(place.functions[0], {unsigned(items)}, shape(), stream, t);
  }

 private:
  static bool whole(const void *at, const tw_attention_strides &s, int64_t bytes) {
    return uintptr_t(at) % 16 == 0 && (s.batch * bytes | s.row * bytes | s.head * bytes) % 16 == 0;
  }
  static bool even(const tw_attention_strides &s) { return (s.batch | s.row | s.head) % 2 == 0; }
  static bool same(const tw_attention_strides &a, const tw_attention_strides &b) {
    return a.batch == b.batch && a.row == b.row && a.head == b.head;
  }
};

}  // namespace tw::cuda
