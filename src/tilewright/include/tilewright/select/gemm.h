// A GEMM problem as selection sees it, and the rules by which kernels refuse one.
#pragma once
#include <tilewright/select/fields.h>

namespace tw {
namespace select {

// Strides are those of rows (of columns, where an operand lies by columns); `type_*` are numbers of `Type`, `size_*`
// bytes of an element.  `plain`: nothing is fused; `activation`: what is fused computes transcendental functions.  `preshuffled`: B was packed beforehand.
// clang-format off
#define TW_SELECT_GEMM_PROBLEM(X) \
  X(m) X(n) X(k) X(batch) X(a_stride) X(b_stride) X(c_stride) X(num_d) X(beta) X(preshuffled) X(broadcast_a) \
  X(broadcast_b) X(aligned) X(type_a) X(type_b) X(size_a) X(size_b) X(size_c) X(size_d) X(a_rows) X(b_rows) \
  X(plain) X(activation)
// clang-format on
TW_SELECT_STRUCT(GemmProblem, int, TW_SELECT_GEMM_PROBLEM)

enum Type : int64_t { fp32, tf32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int32, other_type };

// Why a kernel does not serve a problem: the first of its rules that the problem breaks.
// clang-format off
#define TW_SELECT_GEMM_RULES(X) \
  X(serves) X(no_edge_code) X(cpu_stream_size) X(nv_empty_k) X(nv_size) X(nv_alignment) X(nv_cluster_k) \
  X(nv_skinny_size) X(nv_skinny_k) X(amd_alignment) X(amd_operand_size) X(amd_tiles) X(amd_k_loops) \
  X(amd_preshuffle_columns)
// clang-format on
#define TW_SELECT_RULE(name) name,
enum class GemmRule : int32_t { TW_SELECT_GEMM_RULES(TW_SELECT_RULE) };
inline const char *GemmRule_names() { return TW_SELECT_GEMM_RULES(TW_SELECT_NAME) ""; }

inline Wide multiply_adds(const GemmProblem &p) { return Wide(p.m) * p.n * p.k * p.batch; }
inline bool nothing_to_do(const GemmProblem &p) { return p.m == 0 || p.n == 0 || p.batch == 0; }

// Each operand read once, the result written once.
inline double bytes_moved(const GemmProblem &p) {
  const Wide a = Wide(p.m) * p.k * p.size_a * (p.broadcast_a ? 1 : p.batch);
  const Wide b = Wide(p.k) * p.n * p.size_b * (p.broadcast_b ? 1 : p.batch);
  const Wide e = Wide(p.m) * p.n * p.size_c * p.batch;
  const Wide d = Wide(p.num_d) * p.m * p.n * p.size_d * p.batch;
  return double(a + b + d + e * (p.beta ? 2 : 1));
}

// Edge code is what a kernel has for sizes that are no multiple of these.
inline GemmRule broken_edges(const GemmProblem &p, int64_t m, int64_t n, int64_t k) {
  return p.m % m || p.n % n || p.k % k ? GemmRule::no_edge_code : GemmRule::serves;
}

}  // namespace select
}  // namespace tw
