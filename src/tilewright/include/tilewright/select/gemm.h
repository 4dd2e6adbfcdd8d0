// A GEMM problem as selection sees it, and the rules by which kernels refuse one.
#pragma once
#include <tilewright/select/fields.h>
#include <tilewright/select/rules.h>

namespace tw {
namespace selection {

// Strides are those of rows (of columns, where an operand lies by columns); `type_*` are numbers of `Type`, `size_*`
// bytes of an element.  `plain`: nothing is fused; `activation`: what is fused computes transcendental functions.  `preshuffled`: B was packed beforehand.
// `dual`: there are two B, and a result has a sum of each.  `aligned_*`: an operand's address and batch stride are known
// to be multiples of 16 bytes (c: the result's); `aligned`: all are.
// clang-format off
#define TW_SELECT_GEMM_PROBLEM(X) \
  X(m) X(n) X(k) X(batch) X(a_stride) X(b_stride) X(c_stride) X(num_d) X(beta) X(preshuffled) X(broadcast_a) \
  X(broadcast_b) X(aligned) X(aligned_a) X(aligned_b) X(aligned_c) X(type_a) X(type_b) X(size_a) X(size_b) \
  X(size_c) X(size_d) X(a_rows) X(b_rows) X(plain) X(activation) X(dual)
// clang-format on
TW_SELECT_STRUCT(GemmProblem, int, TW_SELECT_GEMM_PROBLEM)

inline void set_aligned(GemmProblem &p, bool a, bool b, bool c) {
  p.aligned_a = a, p.aligned_b = b, p.aligned_c = c, p.aligned = a && b && c;
}

inline const char *names_of(const GemmProblem &) { return GemmProblem_names(); }
inline const GemmProblem &numbers_of(const GemmProblem &p) { return p; }

enum Type : int64_t { fp32, tf32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int32, other_type };

inline constexpr Rule no_edge_m{"no-edge-code", TW_DIVISIBILITY,
                                "m = {m} is not a multiple of {grain_m} and the kernel has no edge code along m",
                                "pad m to a multiple of {grain_m}, or use a kernel with pad_m"};
inline constexpr Rule no_edge_n{"no-edge-code", TW_DIVISIBILITY,
                                "n = {n} is not a multiple of {grain_n} and the kernel has no edge code along n",
                                "pad n to a multiple of {grain_n}, or use a kernel with pad_n"};
inline constexpr Rule no_edge_k{"no-edge-code", TW_DIVISIBILITY,
                                "k = {k} is not a multiple of {grain_k} and the kernel has no edge code along k",
                                "pad k to a multiple of {grain_k}, or use a kernel with pad_k"};

inline int64_t sums(const GemmProblem &p) { return p.dual ? 2 : 1; }  // of a result
inline Wide multiply_adds(const GemmProblem &p) { return Wide(p.m) * p.n * p.k * p.batch * sums(p); }
inline bool nothing_to_do(const GemmProblem &p) { return p.m == 0 || p.n == 0 || p.batch == 0; }

// Each operand read once, the result written once.
inline double bytes_moved(const GemmProblem &p) {
  const Wide a = Wide(p.m) * p.k * p.size_a * (p.broadcast_a ? 1 : p.batch);
  const Wide b = Wide(p.k) * p.n * p.size_b * (p.broadcast_b ? 1 : p.batch) * sums(p);
  const Wide e = Wide(p.m) * p.n * p.size_c * p.batch;
  const Wide d = Wide(p.num_d) * p.m * p.n * p.size_d * p.batch;
  return double(a + b + d + e * (p.beta ? 2 : 1));
}

// What all kernels of a question share.
struct PreparedGemm {
  using Problem = GemmProblem;
  const GemmProblem &p;
  double moved;
  explicit PreparedGemm(const GemmProblem &problem) : p(problem), moved(bytes_moved(problem)) {}
  static const char *names() { return GemmProblem_names(); }
};

// A problem with what its cost is counted in.
template <class Rates, class Arch> struct GemmQuery {
  const GemmProblem &p;
  double moved;  // bytes_moved(p)
  const Rates &rate;
  const Arch &arch;
  const Host &host;
  static GemmQuery of(const PreparedGemm &prepared, const Rates &rate, const Arch &arch, const Host &host) {
    return {prepared.p, prepared.moved, rate, arch, host};
  }
  const GemmProblem &problem() const { return p; }
};

// Edge code is what a kernel has for sizes that are no multiple of these.
inline const Rule *broken_edges(const GemmProblem &p, int64_t m, int64_t n, int64_t k) {
  if (p.m % m) return &no_edge_m;
  if (p.n % n) return &no_edge_n;
  return p.k % k ? &no_edge_k : nullptr;
}

}  // namespace selection
}  // namespace tw
