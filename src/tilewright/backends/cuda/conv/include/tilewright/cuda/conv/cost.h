// What the costs of convolutions on NVIDIA GPUs are counted in.
#pragma once
#include <tilewright/cuda/conv/limits.h>
#include <tilewright/cuda/gemm/cost.h>

namespace tw {
namespace selection {
namespace cuda_conv {

// Constants of the arch table; what each means stands in backends/cuda/conv/rates.py.
// clang-format off
#define TW_SELECT_CUDA_CONV_RATES(X) \
  X(units) X(start) X(loop_rate) X(loop_step) X(band_macs) X(band_weight_macs) X(one_cache) X(first_cycle) \
  X(first_fill) X(band_fill) X(band_tile) X(diagonal) X(pixel_1) X(pixel_2) X(pixel_3) X(band_pixel_1) \
  X(band_pixel_2) X(band_pixel_3) X(band_row) X(few_taps) X(few_taps_of_three) X(memory) X(through) X(fmas) \
  X(tile_fmas) X(mma_bytes) X(enough) X(transposed) X(add_start) X(sums) X(short_row)
#define TW_SELECT_CUDA_CONV_GATHER_RATES(X) \
  X(units) X(start) X(fill) X(macs_1) X(macs_2) X(macs_4) X(issued) X(fetched) X(setup) X(sync) X(memory)
#define TW_SELECT_CUDA_CONV_POINTWISE_RATES(X) X(row) X(short_row) X(first_rows)
// clang-format on
#define TW_SELECT_CONV_NAME(name) "conv_" #name " "
#define TW_SELECT_GATHER_NAME(name) "conv_gather_" #name " "
#define TW_SELECT_POINTWISE_NAME(name) "conv_pointwise_" #name " "

struct GatherRates {
  TW_SELECT_CUDA_CONV_GATHER_RATES(TW_SELECT_FIELD_real)
};
struct PointwiseRates {
  TW_SELECT_CUDA_CONV_POINTWISE_RATES(TW_SELECT_FIELD_real)
};
struct Rates {
  TW_SELECT_CUDA_CONV_RATES(TW_SELECT_FIELD_real)
  GatherRates gather;
  PointwiseRates pointwise;
  cuda_gemm::Rates gemm;
  double pixel(int64_t dims) const { return dims == 3 ? pixel_3 : dims == 2 ? pixel_2 : pixel_1; }
  double band_pixel(int64_t dims) const { return dims == 3 ? band_pixel_3 : dims == 2 ? band_pixel_2 : band_pixel_1; }
};

inline const char *Rates_names() {
  return TW_SELECT_CUDA_CONV_RATES(TW_SELECT_CONV_NAME) TW_SELECT_CUDA_CONV_GATHER_RATES(TW_SELECT_GATHER_NAME)
      TW_SELECT_CUDA_CONV_POINTWISE_RATES(TW_SELECT_POINTWISE_NAME) TW_SELECT_CUDA_GEMM_RATES(TW_SELECT_NAME) "";
}

#define TW_SELECT_CUDA_CONV_ARCH(X) X(compute_units) X(scratch_bytes) X(wgmma)
TW_SELECT_STRUCT(Arch, int, TW_SELECT_CUDA_CONV_ARCH)

using Query = ConvQuery<Rates, Arch>;

inline double multiply_adds(const Conv &c) {
  return double(Wide(c.p.batch) * c.out.product() * c.p.filters * c.group_channels * c.taps);
}

}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
