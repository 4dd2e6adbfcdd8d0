// A kernel's own check of a GEMM problem, by the limits that selection uses too.
#pragma once
#include <tilewright/gemm_args.h>
#include <tilewright/say.h>
#include <tilewright/select/check.h>
#include <tilewright/select/gemm.h>

namespace tw {
namespace selection {

// What limits may read of a problem, from the arguments of a call.  Config: A, B, C, D, a_rows, b_rows, num_d; `packed`:
// B comes packed.  Element types are known by their sizes: no limit reads more.
template <class Config> GemmProblem gemm_of(const tw_gemm_args &x, bool packed) {
  GemmProblem p{};
  p.m = x.m, p.n = x.n, p.k = x.k, p.batch = x.batch;
  p.a_stride = x.a_stride, p.b_stride = x.b_stride, p.c_stride = x.e_stride;
  p.num_d = Config::num_d, p.beta = x.beta != 0, p.preshuffled = packed;
  p.broadcast_a = x.batch > 1 && x.a_batch_stride == 0, p.broadcast_b = x.batch > 1 && x.b_batch_stride == 0;
  set_aligned(p, true, true, true);
  p.type_a = p.type_b = other_type;
  p.size_a = sizeof(typename Config::A), p.size_b = sizeof(typename Config::B);
  p.size_c = sizeof(typename Config::C), p.size_d = sizeof(typename Config::D);
  p.a_rows = Config::a_rows, p.b_rows = Config::b_rows;
  p.dual = gates(Config::epilogue) && Config::num_d == 0;
  return p;
}

// Whether A, B, E and their batch strides are multiples of 16 bytes: `aligned_*` of a problem on a device.
template <class Config> void set_aligned(GemmProblem &p, const tw_gemm_args &x, bool packed) {
  const auto whole = [&x](const void *at, int64_t batch_stride, size_t size) {
    return reinterpret_cast<uintptr_t>(at) % 16 == 0 && (x.batch <= 1 || batch_stride * int64_t(size) % 16 == 0);
  };
  const bool of_b =
      whole(x.b, packed ? 0 : x.b_batch_stride, sizeof(typename Config::B)) &&
      (!(gates(Config::epilogue) && Config::num_d == 0) || whole(x.b_up, x.b_batch_stride, sizeof(typename Config::B)));
  set_aligned(p, whole(x.a, x.a_batch_stride, sizeof(typename Config::A)), of_b,
              whole(x.e, x.e_batch_stride, sizeof(typename Config::C)));
}

}  // namespace selection
}  // namespace tw
