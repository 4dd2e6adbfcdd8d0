// What the host's halves of GEMM pipelines share.  A pipeline's host half is a struct with
//   broken(x)     what it refuses that no problem says, beyond the limits of its family; not called for empty problems
//   aligned(x)    whether addresses and batch strides are what its copies need: `aligned` of the problem
//   workspace(x)  bytes, of which clear_bytes are zero before and after a launch
//   shape()       how its function is launched
//   run(x, place, workspace, stream)
#pragma once
#include <tilewright/cuda/gemm/rules.h>
#include <tilewright/cuda/host/launch.h>
#include <tilewright/gemm_rules.h>
#include <tilewright/gpu/gemm_host.h>
#include <tilewright/select/gemm_args.h>

namespace tw::cuda {

constexpr int64_t most_size = selection::cuda_gemm::kMostSize;

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

// Copies of 16 bytes, of every operand.
template <class Config> struct WideCopies {
  static void set_aligned(selection::GemmProblem &p, const tw_gemm_args &x) {
    selection::set_aligned<Config>(p, x, Config::packed);
  }
};

}  // namespace tw::cuda
