// The host's half of the tma_ws pipeline: tensor maps, copies of what TMA cannot read, and the launch.
#pragma once
#include <tilewright/cuda/gemm/host_operands.h>
#include <tilewright/cuda/gemm/host_pack.h>
#include <tilewright/cuda/gemm/host_repack.h>
#include <tilewright/cuda/gemm/tma_ws/host_ws.h>
#include <tilewright/cuda/host/tensor_maps.h>

namespace tw::cuda {

// makes_room: the second-level cache may give up early what nobody is thought to come back for.
template <class Config, bool makes_room = true> struct HostTmaWs : WideCopies<Config> {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  using Ws = HostWs<Config>;
  using S = typename Ws::S;
  using Scheduling = typename Ws::Scheduling;
  using Operand = typename Ws::Operand;
  using Copies = HostRepack<Config>;
  using AuxOperands = HostAuxOperands<Config, S>;
  static constexpr bool packed = Config::packed;  // B is what `pack` made
  static constexpr int64_t clear_bytes = Scheduling::clear_bytes;
  enum Functions { main_function, repack_function, pack_function };

  static Answer broken(const tw_gemm_args &x) {
    return packed && odd(x.b) ? Answer{TW_ALIGNMENT, "the packed B does not start at a multiple of 16 bytes"}
                              : Answer{};
  }
  static int64_t workspace(const tw_gemm_args &x) { return Scheduling::bytes + Copies::bytes(x); }
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), unsigned(S::Cluster), true, false, true};
  }

  static int run(tw_gemm_args x, const Loaded::Place &place, void *workspace, void *stream) {
    const bool copied = Copies::of_a(x) || Copies::of_b(x);
    if ((Scheduling::shares || copied) && !workspace) return TW_BAD_ARGS;
    if (copied) {
      char *room = static_cast<char *>(workspace) + Scheduling::bytes;
      if (int status = Copies::run(x, place.functions[repack_function], place.multiprocessors, room, stream))
        return status;
    }
    TensorMap a = {}, b = {}, e = {}, d = {};
    if (int error = maps(x, a, b, e)) return status_of(error);
    TmaWsArgs t = arguments(x);
    if constexpr (S::TmaStore) {
      if (int error = AuxOperands::set_up(x, t, d)) return status_of(error);
    }
    if constexpr (S::Dual) {
      if (int error = map_up(x, d)) return status_of(error);
      t.aux_operands[0].scale = float(x.alpha), t.finish.alpha = 1;
    }
    const unsigned blocks = Ws::schedule(t, place, workspace);
    LaunchShape how = shape();
    how.early = copied;
    return start(place.functions[main_function], {blocks}, how, stream, a, b, e, d, t);
  }

 private:
  // One matrix for the whole batch: every z reads the same one (every_a, every_b).
  static MapKey key(const tw_gemm_args &x, const Operand &o, bool lines_first) {
    return MapKey{
        o.at,          lines_first ? o.lines : x.k, lines_first ? x.k : o.lines, o.batch_stride ? x.batch : 1, o.stride,
        o.batch_stride};
  }
  using MapB =
      MapCache<B, S::MajorB ? 64 : S::BK, S::MajorB ? 64 / S::ClusterM : tma_ws_part(S::out_columns, S::ClusterM), 3>;
  // Of the second B; 0, or the driver's error.
  static int map_up(const tw_gemm_args &x, TensorMap &up) {
    static MapB maps;
    Operand of = Ws::second(x);
    of.at = x.b_up;
    return maps.get(key(x, of, false), up);
  }
  // 0, or the driver's error.
  static int maps(const tw_gemm_args &x, TensorMap &a, TensorMap &b, TensorMap &e) {
    // k-contiguous: rows of 128 bytes; else 64 lines of some k.
    using MapA = MapCache<A, S::MajorA ? 64 : S::BK, S::MajorA ? 64 / S::ClusterN : tma_ws_part(S::BM, S::ClusterN), 3>;
    // Results leave as 64 rows of some columns, or with swap_ab, as 64 columns of some rows.
    using MapE = ChunkMaps<C, S::SwapAB ? 64 : S::chunk_columns, S::SwapAB ? S::chunk_columns : 64>;
    static MapA maps_a;
    static MapB maps_b;
    int error = 0;
    if (!S::PackedA) error = maps_a.get(key(x, Ws::first(x), S::MajorA), a);
    if (!error && !S::PackedB) error = maps_b.get(key(x, Ws::second(x), S::MajorB), b);
    if constexpr (S::TmaStore) {
      static MapE maps_e;
      if (!error) error = maps_e.get(MapKey{x.e, x.n, x.m, x.batch, x.e_stride, x.e_batch_stride}, e);
    }
    return error;
  }

  // Whether nobody comes back for an operand that `times` tiles read, and these close together.  Rows that begin inside a
  // line of the cache are needed once more in the next k-block.
  static bool once(const Operand &o, bool lines_first, int64_t size, int64_t times) {
    constexpr int64_t line = 128;
    const bool whole = lines_first || (o.stride * size % line == 0 && int64_t(intptr_t(o.at)) % line == 0);
    return makes_room && times <= 4 && whole;
  }

  static TmaWsArgs arguments(const tw_gemm_args &x) {
    const Operand one = Ws::first(x), two = Ws::second(x);
    TmaWsArgs t{};
    Ws::fill(t, x);
    t.a_policy = once(one, S::MajorA, sizeof(A), t.order.tiles_n) ? read_once : cached;
    t.b_policy = once(two, S::MajorB, sizeof(B), t.order.tiles_m) ? read_once : cached;
    if (packed) {
      const PackArgs form = pack_args<Config>(x, nullptr);
      t.packed = static_cast<const char *>(x.b);
      t.packed_lines = int(form.padded), t.packed_block = form.padded * Pack::row;
      t.packed_batch = t.packed_block * form.blocks;
    }
    return t;
  }
};

}  // namespace tw::cuda
