// The host's half of attention in equal shares: as that of ws, with room where pieces of items meet.
#pragma once
#include <tilewright/cuda/attention/ws/host.h>

namespace tw::cuda {

template <class Config> struct HostAttentionStreamK : HostAttentionWs<Config> {
  using Args = tw_attention_args;
  using S = AttentionWs<Config>;
  using Like = HostAttentionWs<Config>;
  static constexpr int most_blocks = Config::Arch::most_processors * S::ctas_per_sm;
  static constexpr int64_t clear_bytes = most_blocks * 4;

  // Counters, two pieces a block, and their lse.
  static int64_t workspace(const Args &x) { return clear_bytes + 2 * blocks(x) * rows(x) * (S::DV + 1) * 4; }

  static int run(const Args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (!workspace) return TW_BAD_ARGS;
    if (Like::rows_sizes(x).rows == 0) return TW_OK;
    AttentionWsArgs t = Like::lay(x);
    t.flags = static_cast<unsigned *>(workspace);
    t.piece_rows = int(rows(x));
    t.parts = reinterpret_cast<float *>(static_cast<char *>(workspace) + clear_bytes);
    t.part_lse = t.parts + 2 * blocks(x) * rows(x) * S::DV;
    TensorMap q = {}, k = {}, v = {};
    if (int error = Like::maps(x, t, q, k, v)) return status_of(error);
    const int64_t here = int64_t(place.multiprocessors) * (place.ctas_per_sm > 0 ? place.ctas_per_sm : 1);
    const int64_t wanted = blocks(x);
    return start(place.functions[0], {unsigned(wanted < here ? wanted : here)}, Like::shape(), stream, q, k, v, t);
  }

 private:
  static int64_t rows(const Args &x) { return x.rows * (x.heads_q / x.heads_kv); }
  static int64_t tiles(const Args &x) {
    const int64_t of_a_head = ceil_div(x.keys, S::BN);
    return x.batch * x.heads_kv * (of_a_head > 0 ? of_a_head : 1);
  }
  static int64_t blocks(const Args &x) {
    const int64_t wanted = tiles(x) / least_tiles < x.heads_kv ? x.heads_kv : tiles(x) / least_tiles;
    return wanted < most_blocks ? wanted : most_blocks;
  }
};

}  // namespace tw::cuda
