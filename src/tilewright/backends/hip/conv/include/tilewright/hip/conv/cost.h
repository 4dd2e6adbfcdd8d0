// What convolutions on AMD GPUs cost alike: rates, copies, loads.
#pragma once
#include <tilewright/hip/conv/limits.h>
#include <tilewright/hip/gemm/cost.h>

namespace tw {
namespace selection {
namespace hip_conv {

// What each means stands in backends/hip/conv/rates.py.
// clang-format off
#define TW_SELECT_HIP_CONV_RATES(X) \
  X(start) X(loop_rate) X(walking) X(loads_a_second) X(rdna_clock) X(rdna_memory) X(rdna_share) X(wmma_macs) \
  X(fma_macs) X(copied)
// clang-format on
#define TW_SELECT_HIP_CONV_NAME(name) "conv_" #name " "

struct Rates {
  TW_SELECT_HIP_CONV_RATES(TW_SELECT_FIELD_real)
  hip_gemm::Rates gemm;
};

inline const char *Rates_names() {
  return TW_SELECT_HIP_CONV_RATES(TW_SELECT_HIP_CONV_NAME) TW_SELECT_HIP_GEMM_RATES(TW_SELECT_NAME) "";
}

using hip_gemm::Arch;
using hip_gemm::Arch_names;

using Query = ConvQuery<Rates, Arch>;

// Seconds of a launch for each operand, and of its bytes.
inline double copying(const Query &x, const Copied &made, const Conv &larger) {
  const ConvProblem &p = x.c.p;
  const auto each = [&](bool copied, double elements, bool written) {
    const int64_t size = written ? p.size_out : p.size;
    return copied ? x.rate.start + elements * double(size) / x.rate.copied : 0.0;
  };
  double total = each(made.x, x.c.x_elements() + larger.x_elements(), p.variant == backward_data);
  total += each(made.w, x.c.w_elements() + larger.w_elements(), p.variant == backward_weight);
  return total + each(made.y, x.c.y_elements() + larger.y_elements(), p.variant == forward);
}

// Seconds of issuing more loads than the widest would be.
inline double loading(const Tiles &t, const Query &x, const Product &product, int64_t batch) {
  const Wide tiles =
      Wide(ceil_div(product.m, t.tile_m)) * ceil_div(product.n, t.tile_n) * ceil_div(product.k, t.tile_k);
  const auto each = [&](int64_t lines, int64_t width) {
    const Wide elements = lines * t.tile_k * tiles * batch;
    return double(elements) / double(width) - double(elements * x.c.p.size) / double(kAccess);
  };
  return (each(t.tile_m, t.read_a) + each(t.tile_n, t.read_b)) / x.rate.loads_a_second;
}

// A convolution costs what its matrix product costs, a little more for finding pixels, and more where loads are narrow:
// a load of one element takes as long as one of sixteen bytes.  `multiplied(c, product, batch)`: seconds of the product.
template <class Multiplied> double computing(const Tiles &t, const Query &x, const Conv &c, Multiplied multiplied) {
  Product product = product_of(c, t.merged);
  int64_t batch = ceil_div(c.p.groups, t.merged);
  if (c.p.variant == backward_data) {  // a product for each residue, of its share of pixels and taps
    const int64_t classes = int64_t(residues(c));
    product.m = ceil_div(product.m, classes), product.k = larger(1, ceil_div(product.k, classes)), batch *= classes;
  }
  const double walking = t.pointwise ? 1.0 : x.rate.walking;
  return multiplied(c, product, batch) * walking + loading(t, x, product, batch);
}

// Copies of operands come before and after.
template <class Multiplied> double seconds_of(const Tiles &t, const Query &x, Multiplied multiplied) {
  if (!t.copies) return computing(t, x, x.c, multiplied);
  const Copied made = copied(t, x.c);
  const Conv larger(made.p);
  return copying(x, made, larger) + computing(t, x, larger, multiplied);
}

}  // namespace hip_conv
}  // namespace selection
}  // namespace tw

// The export of which operands a kernel copies: bits of x, w and y.  A schedule begins with its tiles.
#define TW_SELECT_HIP_CONV_COPIES \
  TW_SELECT_API void tw_select_copies(const tw::selection::ConvProblem *problem, \
                                      const tw::selection::hip_conv::Tiles *tiles, int64_t *bits) { \
    const tw::selection::hip_conv::Copied made = \
        tw::selection::hip_conv::copied(*tiles, tw::selection::Conv(*problem)); \
    *bits = made.x | made.w << 1 | made.y << 2; \
  }
