// The host's half of attention's gradients by the mma pipeline: two launches, and zeros for what is added to.
#pragma once
#include <tilewright/cuda/attention_backward/clear.h>
#include <tilewright/cuda/attention_backward/mma/shape.h>
#include <tilewright/cuda/host/launch.h>

namespace tw::cuda {

template <class Config> struct HostAttentionBackwardMma {
  using Args = tw_attention_backward_args;
  using S = AttentionBackwardMma<Config>;
  using T = typename S::T;

  static int64_t workspace(const Args &) { return 0; }
  static constexpr LaunchShape shape() { return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes)}; }

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    if (Config::dbias || Config::dalibi)
      if (int status = clear(x, place, stream)) return status;
    AttentionBackwardMmaArgs t{backward_call<Config>(x),    tiles(x.rows, x.starts_q), tiles(x.keys, x.starts_k),
                               wide(x.q, x.q_strides),      wide(x.k, x.k_strides),    wide(x.v, x.v_strides),
                               wide(x.dout, x.dout_strides)};
    const int64_t keys = int64_t(t.key_tiles) * x.heads_kv * x.batch, rows = int64_t(t.row_tiles) * x.heads_q * x.batch;
    if (keys > 0)
      if (int status = start(place.functions[0], {unsigned(keys)}, shape(), stream, t)) return status;
    if (rows == 0) return TW_OK;
    if (S::shared_bytes > 48 * 1024)
      if (int error = driver().set_attribute(place.functions[1], max_dynamic_shared, S::shared_bytes))
        return status_of(error);
    return start(place.functions[1], {unsigned(rows)}, shape(), stream, t);
  }

 private:
  // Packed rows that no sequence has are the first tile's, of a sequence without rows too.
  static int tiles(int64_t rows, const void *starts) {
    const int needed = int(ceil_div(rows, S::own));
    return starts && needed < 1 ? 1 : needed;
  }
  static bool wide(const void *at, const tw_attention_strides &s) {
    return uintptr_t(at) % 16 == 0 && (s.batch | s.row | s.head) * int64_t(sizeof(T)) % 16 == 0;
  }
  static int clear(const Args &x, const Loaded::Place &place, void *stream) {
    BackwardAddedArgs a = added_of<Config>(x);
    const int64_t entries = a.bias_sizes[0] * a.bias_sizes[1] * a.bias_sizes[2] * a.bias_sizes[3];
    const int64_t more = a.alibi_sizes[0] * a.alibi_sizes[1], most = int64_t(place.multiprocessors) * 8;
    const int64_t blocks = ceil_div(entries > more ? entries : more, backward_clear_threads);
    if (blocks == 0) return TW_OK;
    const LaunchShape like{unsigned(backward_clear_threads)};
    return start(place.functions[2], {unsigned(blocks < most ? blocks : most)}, like, stream, a);
  }
};

}  // namespace tw::cuda
