// The host's half of the stages before and behind attention's gradients.
#pragma once
#include <tilewright/cuda/attention_backward/rows/shape.h>
#include <tilewright/cuda/host/launch.h>

namespace tw::cuda {

inline bool backward_whole(const void *at, const tw_attention_strides &s, int64_t head, int64_t bytes) {
  return uintptr_t(at) % 16 == 0 && (s.batch * bytes | s.row * bytes | s.head * bytes | head * bytes) % 16 == 0;
}

template <class Config> struct HostAttentionBackwardDot {
  using Args = tw_attention_backward_dot_args;
  using S = BackwardRows<Config>;
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), 128, 1, false, Config::early}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    constexpr int64_t size = sizeof(typename Config::T);
    BackwardDotArgs d{x, int(prepared_end(x.rows) / prepared_rows), 0};
    d.wide = backward_whole(x.out, x.out_strides, x.head_v, size) && backward_whole(x.dout, x.dout_strides, 0, size);
    const int64_t blocks = d.tiles * x.heads_q * x.batch;
    if (blocks > 0)
      if (int status = start(place.functions[0], {unsigned(blocks)}, shape(), stream, d)) return status;
    if (!Config::dsink) return TW_OK;
    return start(place.functions[1], {unsigned(x.heads_q)}, shape(), stream, d);
  }
};

template <class Config> struct HostAttentionBackwardConvert {
  using Args = tw_attention_backward_convert_args;
  using S = BackwardRows<Config>;
  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), 0, 1, false, Config::early}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    BackwardConvertArgs c{x, tiles(x.rows, x.starts_q), tiles(x.keys, x.starts_k), 0, 0, 0};
    c.wide = whole(x.dq, x.head_qk) && whole(x.dk, x.head_qk) && whole(x.dv, x.head_v);
    c.dq_blocks = int(x.dq.to ? c.row_tiles * x.heads_q * x.batch : 0);
    c.dkv_blocks = int(x.dk.to ? c.key_tiles * x.heads_kv * x.batch : 0);
    const int64_t blocks = int64_t(c.dq_blocks) + (x.dv.to ? 2 : 1) * int64_t(c.dkv_blocks);
    return blocks > 0 ? start(place.functions[0], {unsigned(blocks)}, shape(), stream, c) : TW_OK;
  }

 private:
  // Packed rows that no sequence has are the first tile's, of a sequence without rows too.
  static int tiles(int64_t rows, const void *starts) {
    const int needed = int(prepared_end(rows) / prepared_rows);
    return starts && needed < 1 ? 1 : needed;
  }
  static bool whole(const tw_attention_backward_sums &x, int64_t head) {
    return !x.to || (backward_whole(x.source, x.source_strides, head, 4) &&
                     backward_whole(x.to, x.to_strides, head, sizeof(typename Config::T)));
  }
};

}  // namespace tw::cuda
