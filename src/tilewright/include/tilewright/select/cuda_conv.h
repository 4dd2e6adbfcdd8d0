// What the kernels of convolutions on NVIDIA GPUs share: rates, and where operands lie that the copy engine fetches.
#pragma once
#include <tilewright/select/conv.h>
#include <tilewright/select/cuda_gemm.h>

namespace tw {
namespace select {
namespace cuda_conv {

// Constants of the arch table; what each means stands in backends/cuda/conv/estimate*.py.
// clang-format off
#define TW_SELECT_CUDA_CONV_RATES(X) \
  X(units) X(start) X(pixel_1) X(pixel_2) X(pixel_3) X(band_fill) X(add_start) X(short_row) X(band_macs) \
  X(one_cache) X(band_tile) X(diagonal) X(band_pixel_1) X(band_pixel_2) X(band_pixel_3) X(band_row) X(few_taps) \
  X(few_taps_of_three) X(through) X(pointwise_row) X(pointwise_short_row) X(pointwise_first_rows)
#define TW_SELECT_CUDA_CONV_GATHER_RATES(X) \
  X(start) X(fill) X(macs_1) X(macs_2) X(macs_4) X(issued) X(fetched) X(setup) X(meet) X(memory)
// clang-format on
#define TW_SELECT_CONV_NAME(name) "conv_" #name " "
#define TW_SELECT_GATHER_NAME(name) "gather_" #name " "

struct GatherRates {
  TW_SELECT_CUDA_CONV_GATHER_RATES(TW_SELECT_FIELD_real)
};

struct Rates {
  TW_SELECT_CUDA_CONV_RATES(TW_SELECT_FIELD_real)
  GatherRates gather;
  cuda_gemm::Rates gemm;
};

inline const char *Rates_names() {
  return TW_SELECT_CUDA_CONV_RATES(TW_SELECT_CONV_NAME) TW_SELECT_CUDA_CONV_GATHER_RATES(TW_SELECT_GATHER_NAME)
      TW_SELECT_CUDA_GEMM_RATES(TW_SELECT_NAME) "";
}

#define TW_SELECT_CUDA_CONV_ARCH(X) X(compute_units) X(scratch_bytes) X(wgmma)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CUDA_CONV_ARCH)

struct Asked {
  const Conv &c;
  const Rates &rate;
  const Arch &arch;
  const Host &host;
};

constexpr int64_t kLineBytes = 16;  // what the copy engine asks of addresses and strides
constexpr int64_t kMost = int64_t(1) << 31;

inline bool odd_bytes(int64_t stride, int64_t size) { return stride * size % kLineBytes != 0; }

// Of how many groups one is made: as few as fill whole stages, two or more; 0 where no number does.
inline int64_t merged_groups(const Conv &c, bool merged, int64_t stage) {
  if (!merged) return 1;
  const int64_t deep = c.p.variant == backward_data ? c.group_filters : c.group_channels;
  for (int64_t n = 2; n <= c.p.groups; ++n)
    if (c.p.groups % n == 0 && n * deep % stage == 0) return n;
  return 0;
}

// Gradients of weights whose taps are no whole 64s of columns side by side (cuda/conv/tma_ws/host.h).
inline bool odd_columns(const Conv &c) {
  return c.group_channels % 64 > 0 || (c.taps > 1 && c.p.w_2 != c.group_channels);
}

// Of those, the ones that leave to where they belong, with nothing in between.
inline bool ragged(const Conv &c) {
  const bool whole = c.p.groups == 1 && c.p.channels % 8 == 0 && c.p.aligned;
  return odd_columns(c) && whole && !odd_bytes(c.p.w_filter, c.p.size_out) && !odd_bytes(c.p.w_2, c.p.size_out);
}

}  // namespace cuda_conv
}  // namespace select
}  // namespace tw
