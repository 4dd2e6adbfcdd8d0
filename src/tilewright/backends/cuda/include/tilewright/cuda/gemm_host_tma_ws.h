// The host's half of the tma_ws pipeline: tensor maps, copies of what the copy engine cannot read, and the launch.
#pragma once
#include <tilewright/cuda/deal.h>
#include <tilewright/cuda/gemm_host_guests.h>
#include <tilewright/cuda/gemm_host_pack.h>
#include <tilewright/cuda/gemm_host_repack.h>
#include <tilewright/cuda/gemm_pipelines.h>
#include <tilewright/cuda/tensor_maps.h>

namespace tw::cuda {

template <class Config> struct HostTmaWs {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  using S = tma_ws_of<Config>;
  using Deals = Dealing<S>;
  using Copies = HostRepack<Config>;
  using Guests = HostGuests<Config, S>;
  static constexpr bool packed = Config::packed;  // B is what `pack` made
  static constexpr int64_t clear_bytes = Deals::clear_bytes;
  enum Functions { main_function, repack_function, pack_function };

  static Answer broken(const tw_gemm_args &x) {
    if (x.k == 0) return {TW_LIMIT, "k is 0: this pipeline has nothing to copy"};
    if (x.m >= most_size || x.n >= most_size || x.k >= most_size) return {TW_LIMIT, "a size is 2^31 or more"};
    // What is not said of a problem one by one (addresses, batch strides) must hold for all three.
    const bool batched =
        x.batch > 1 && (odd(x.a_batch_stride, sizeof(A)) || (!packed && odd(x.b_batch_stride, sizeof(B))) ||
                        odd(x.e_batch_stride, sizeof(C)));
    if (packed && odd(x.b)) return {TW_ALIGNMENT, "the packed B does not start at a multiple of 16 bytes"};
    if (Config::tma_store &&
        (odd(x.a) || odd(x.b) || odd(x.e) || batched || odd(x.e_stride, sizeof(C)) || odd(x.n, sizeof(C))))
      return {TW_ALIGNMENT, "an address, a batch stride, or a row of E or its stride is not a multiple of 16 bytes"};
    if (ceil_div(x.k, S::BK) < S::ClusterK) return {TW_LIMIT, "k is too short to be shared by a cluster"};
    if (tiles_of<Config>(x) * ceil_div(x.k, S::BK) * S::ClusterK >= most_size)
      return {TW_LIMIT, "2^31 or more steps of tiles along k"};
    return {};
  }
  static int64_t workspace(const tw_gemm_args &x) { return Deals::bytes + Copies::bytes(x); }
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), unsigned(S::Cluster), true};
  }

  static int run(tw_gemm_args x, const Loaded::Place &place, void *workspace, void *stream) {
    const bool copied = Copies::of_a(x) || Copies::of_b(x);
    if ((Deals::shares || copied) && !workspace) return TW_BAD_ARGS;
    if (copied) {
      char *room = static_cast<char *>(workspace) + Deals::bytes;
      if (int status = Copies::run(x, place.functions[repack_function], place.multiprocessors, room, stream))
        return status;
    }
    TensorMap a = {}, b = {}, e = {}, d = {};
    if (int error = maps(x, a, b, e)) return status_of(error);
    TmaWsArgs t = arguments(x);
    if constexpr (S::TmaStore) {
      if (int error = Guests::invite(x, t, d)) return status_of(error);
    }
    Deals::lend(t, workspace);
    constexpr int64_t limit = Deals::most_blocks / S::Cluster;
    const int64_t here = place.clusters < 1 ? 1 : place.clusters > limit ? limit : place.clusters;
    const int64_t clusters = Deals::deal(t.order, here);
    LaunchShape how = shape();
    how.early = copied;
    return start(place.functions[main_function], {unsigned(clusters * S::Cluster)}, how, stream, a, b, e, d, t);
  }

 private:
  // As the kernel sees them: turned, it is B that lies along its m.
  struct Operand {
    const void *at;
    int64_t lines, stride, batch_stride;
  };
  static Operand first(const tw_gemm_args &x) { return S::Turned ? of_b(x) : of_a(x); }
  static Operand second(const tw_gemm_args &x) { return S::Turned ? of_a(x) : of_b(x); }
  static Operand of_a(const tw_gemm_args &x) { return {x.a, x.m, x.a_stride, x.a_batch_stride}; }
  static Operand of_b(const tw_gemm_args &x) { return {x.b, x.n, x.b_stride, x.b_batch_stride}; }

  // One matrix for the whole batch: every z reads the same one (every_a, every_b).
  static MapKey key(const tw_gemm_args &x, const Operand &o, bool lines_first) {
    return MapKey{
        o.at,          lines_first ? o.lines : x.k, lines_first ? x.k : o.lines, o.batch_stride ? x.batch : 1, o.stride,
        o.batch_stride};
  }
  // 0, or the driver's error.
  static int maps(const tw_gemm_args &x, TensorMap &a, TensorMap &b, TensorMap &e) {
    // k-contiguous: rows of 128 bytes; else 64 lines of some k.
    using MapA = MapCache<A, S::MajorA ? 64 : S::BK, (S::MajorA ? 64 : S::BM) / S::ClusterN, 3>;
    using MapB = MapCache<B, S::MajorB ? 64 : S::BK, (S::MajorB ? 64 : S::BN) / S::ClusterM, 3>;
    using MapE = MapCache<C, S::chunk_columns, 64, S::chunk_columns == 64 ? 3 : S::chunk_columns == 32 ? 2 : 1>;
    static MapA maps_a;
    static MapB maps_b;
    int error = 0;
    if (!S::PackedA) error = maps_a.get(key(x, first(x), S::MajorA), a);
    if (!error && !S::PackedB) error = maps_b.get(key(x, second(x), S::MajorB), b);
    if constexpr (S::TmaStore) {
      static MapE maps_e;
      if (!error) error = maps_e.get(MapKey{x.e, x.n, x.m, x.batch, x.e_stride, x.e_batch_stride}, e);
    }
    return error;
  }

  // Whether nobody comes back for an operand that `times` tiles read, and these close together.  Rows that begin inside a
  // line of the cache are needed once more in the next step of k.
  static bool once(const Operand &o, bool lines_first, int64_t size, int64_t times) {
    constexpr int64_t line = 128;
    const bool whole = lines_first || (o.stride * size % line == 0 && int64_t(intptr_t(o.at)) % line == 0);
    return times <= 4 && whole;
  }

  static TmaWsArgs arguments(const tw_gemm_args &x) {
    const Operand one = first(x), two = second(x);
    TmaWsArgs t{};
    t.m = int(one.lines), t.n = int(two.lines), t.k = int(x.k);
    t.order.batch = int(x.batch), t.order.steps = int(ceil_div(x.k, S::BK));
    t.order.tiles_m = int(ceil_div(t.m, S::BM * S::ClusterM)),
    t.order.tiles_n = int(ceil_div(t.n, S::BN * S::ClusterN));
    t.order.group = 2048 / (S::BM * S::ClusterM);  // bands of that many rows: about as high as a round is wide
    t.a_policy = once(one, S::MajorA, sizeof(A), t.order.tiles_n) ? read_once : cached;
    t.b_policy = once(two, S::MajorB, sizeof(B), t.order.tiles_m) ? read_once : cached;
    t.every_a = one.batch_stride ? 1 : 0, t.every_b = two.batch_stride ? 1 : 0;
    t.e = x.e, t.e_stride = x.e_stride, t.e_batch_stride = x.e_batch_stride;
    if (packed) {
      const PackArgs form = pack_args<Config>(x, nullptr);
      t.packed = static_cast<const char *>(x.b);
      t.packed_lines = int(form.padded), t.packed_block = form.padded * Pack::row;
      t.packed_batch = t.packed_block * form.blocks;
    }
    t.finish = epilogue_args(x);
    return t;
  }
};

}  // namespace tw::cuda
