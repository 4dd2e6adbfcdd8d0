// The host's half of packing B beforehand (pack.h).
#pragma once
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/copies/pack.h>
#include <tilewright/export.h>

namespace tw::cuda {

// A batch stride of 0 means one matrix for the whole batch.
template <class Config> PackArgs pack_args(const tw_gemm_args &x, void *to) {
  PackArgs t{};
  t.from = x.b, t.to = static_cast<char *>(to);
  t.lines = x.n, t.k = x.k, t.batch = x.b_batch_stride ? x.batch : 1;
  t.stride = x.b_stride, t.batch_stride = x.b_batch_stride;
  t.padded = ceil_div(x.n, Pack::atom) * Pack::atom;
  t.blocks = ceil_div(x.k * int64_t(sizeof(typename Config::B)), Pack::row);
  return t;
}

// Pipeline: the host's half of the one that reads what is packed; `which` of the kernel's functions packs.
template <class Config, class Pipeline, int which> struct HostPack : PlainKernel {
  static int64_t packed_bytes(const void *args) {
    const PackArgs t = pack_args<Config>(*static_cast<const tw_gemm_args *>(args), nullptr);
    return t.padded * t.blocks * Pack::row * t.batch;
  }
  static int run_pack(Loaded &loaded, const void *args, void *to, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (x.n < 0 || x.k < 0 || x.batch < 0 || x.b_stride < (Config::b_rows ? x.n : x.k) || odd(to)) return TW_BAD_ARGS;
    PackArgs t = pack_args<Config>(x, to);
    const int64_t pieces = t.padded * t.blocks * t.batch * (Pack::row / Pack::piece);
    if (!pieces) return TW_OK;
    Loaded::Place place;
    if (int error = loaded.get(place, Pipeline::shape())) return status_of(error);
    const int64_t most = ceil_div(pieces, Pack::threads), fair = int64_t(place.multiprocessors) * 16;
    return start(place.functions[which], {unsigned(most < fair ? most : fair)}, LaunchShape{unsigned(Pack::threads)},
                 stream, t);
  }
};

}  // namespace tw::cuda
