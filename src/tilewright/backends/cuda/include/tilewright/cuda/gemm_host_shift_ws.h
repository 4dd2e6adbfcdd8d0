// The host's half of the shift_ws pipeline: where operands lie, and the launch.
#pragma once
#include <tilewright/cuda/gemm_host_ws.h>
#include <tilewright/cuda/shift_ws_shape.h>

namespace tw::cuda {

template <class Config> struct HostShiftWs {
  using Ws = HostWs<Config>;
  using S = typename Ws::S;
  using Deals = typename Ws::Deals;
  static constexpr int64_t clear_bytes = Deals::clear_bytes;

  static Answer broken(const tw_gemm_args &x) {
    if (!turns_a<Config> && !turns_b<Config> && !odd(x.e) &&
        !(x.batch > 1 && odd(x.e_batch_stride, sizeof(typename Config::C))) && !odd_a<Config>(x) && !odd_b<Config>(x))
      return {TW_ALIGNMENT, "every row of A and B starts at a multiple of 16 bytes: tma_ws is for these"};
    return Ws::broken(x);
  }
  static int64_t workspace(const tw_gemm_args &) { return Deals::bytes; }
  static constexpr LaunchShape shape() {
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), unsigned(S::Cluster)};
  }
  static int run(const tw_gemm_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if (Deals::shares && !workspace) return TW_BAD_ARGS;
    ShiftWsArgs t{};
    Ws::tell(t, x);
    t.a = rows(Ws::first(x)), t.b = rows(Ws::second(x));
    return start(place.functions[0], {Ws::deal(t, place, workspace)}, shape(), stream, t);
  }

 private:
  static Rows rows(const typename Ws::Operand &o) {
    constexpr int64_t size = sizeof(typename S::In);
    return {static_cast<const char *>(o.at), o.stride * size, o.batch_stride * size};
  }
};

}  // namespace tw::cuda
