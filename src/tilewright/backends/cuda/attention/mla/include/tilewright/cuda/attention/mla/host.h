// The host's half of attention by the mla pipeline: as that of ws, without a map of queries.
#pragma once
#include <tilewright/cuda/attention/ws/host.h>
#include <tilewright/cuda/attention/mla/shape.h>

namespace tw::cuda {

template <class Config> struct HostAttentionMla : HostAttentionWs<Config, AttentionMla<Config>> {
  using Args = tw_attention_args;
  using S = AttentionMla<Config>;
  using Like = HostAttentionWs<Config, S>;

  static int run(const Args &x, const Loaded::Place &place, void *, void *stream) {
    if (Like::rows_sizes(x).rows == 0) return TW_OK;
    AttentionMlaArgs t{};
    t.ws = Like::lay(x);
    t.values_in_keys = x.v == x.k && x.k_strides.batch == x.v_strides.batch && x.k_strides.row == x.v_strides.row &&
                       x.k_strides.head == x.v_strides.head;
    TensorMap k = {}, v = {};
    if (int error = Like::key_maps(x, t.ws, k, v)) return status_of(error);
    const int64_t items = int64_t(t.ws.row_tiles) * t.ws.heads * x.batch * x.splits;
    return start(place.functions[0], {unsigned(items < place.multiprocessors ? items : place.multiprocessors)},
                 Like::shape(), stream, k, v, t);
  }
};

}  // namespace tw::cuda
