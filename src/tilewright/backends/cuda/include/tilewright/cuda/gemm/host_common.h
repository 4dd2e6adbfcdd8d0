// What the host's halves of GEMM pipelines share.  A pipeline's host half is a struct with
//   broken(x)     the first rule it breaks beyond those of all GEMM kernels; not asked about empty problems
//   workspace(x)  bytes, of which clear_bytes are zero before and after a launch
//   shape()       how its function is launched
//   run(x, place, workspace, stream)
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gemm_rules.h>
#include <tilewright/gpu/gemm_host.h>

namespace tw::cuda {

constexpr int64_t most_size = int64_t(1) << 31;

// Not a multiple of the 16 bytes that wide copies move.
inline bool odd(int64_t elements, int64_t bytes) { return elements * bytes % 16 != 0; }
inline bool odd(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; }
// Of an operand: where it or one of its lines starts.
template <class Config> bool odd_a(const tw_gemm_args &x) {
  constexpr int64_t size = sizeof(typename Config::A);
  return odd(x.a) || odd(x.a_stride, size) || (x.batch > 1 && odd(x.a_batch_stride, size));
}
template <class Config> bool odd_b(const tw_gemm_args &x) {
  constexpr int64_t size = sizeof(typename Config::B);
  if (Config::packed) return false;
  return odd(x.b) || odd(x.b_stride, size) || (x.batch > 1 && odd(x.b_batch_stride, size));
}

// In floating point: the product of sizes may pass 64 bits.
template <class Config> double tiles_of(const tw_gemm_args &x) {
  return double(ceil_div(x.m, Config::tile_m)) * ceil_div(x.n, Config::tile_n) * x.batch;
}

}  // namespace tw::cuda
